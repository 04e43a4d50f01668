"""dumpsys: the state of services, in the lines that clients look for."""

from __future__ import annotations

from actors.phone.commands.activity import component
from actors.phone.process import Call, options


def dumpsys(call: Call) -> int | None:
    flags, words = options(call.args, with_value="-t -T --priority --skip")
    if "-l" in flags or not words:
        call.print("Currently running services:", *(f"  {name}" for name in sorted(_SERVICES)))
        return None
    service = _SERVICES.get(words[0])
    if service is None:
        return call.error(f"Can't find service: {words[0]}", 0)
    service(call, words[1:])
    return None


def _window(call: Call, args: list[str]):
    width, height = call.android.phone.size
    front = component(call.android.phone.foreground)
    focus = [f"  mCurrentFocus=Window{{a1b2c3d u0 {call.android.phone.dialog or front}}}"]
    if call.android.faults.hit("no_focus"):
        focus = []
    if args[:1] != ["displays"]:
        call.print("WINDOW MANAGER WINDOWS (dumpsys window windows)")
        call.print(f"  Window #0 Window{{a1b2c3d u0 {front}}}:", "    mHasSurface=true")
    call.print(
        "WINDOW MANAGER DISPLAY CONTENTS (dumpsys window displays)",
        "  Display: mDisplayId=0",
        f"    init={width}x{height} {call.android.density}dpi cur={width}x{height}",
        "    mCurrentRotation=ROTATION_0",
        *focus,
        f"  mFocusedApp=ActivityRecord{{e4f5a6b u0 {call.android.phone.foreground} t12}}",
    )


def _activity(call: Call, args: list[str]):
    front = call.android.phone.foreground
    record = f"ActivityRecord{{e4f5a6b u0 {front} t12}}"
    package = front.partition("/")[0]
    match args[:1]:
        case ["top"]:
            call.print(
                f"TASK {package} id=12 userId=0",
                f"  ACTIVITY {front} e4f5a6b pid=1234",
                "    View Hierarchy:",
                "      DecorView@c7d8e9f",
            )
        case ["recents"]:
            call.print(
                "ACTIVITY MANAGER RECENT TASKS (dumpsys activity recents)",
                f"  * Recent #0: Task{{12 A=10012:{package} U=0}}",
                f"    realActivity={{{component(front)}}}",
            )
        case _:
            call.print(
                "ACTIVITY MANAGER ACTIVITIES (dumpsys activity activities)",
                "Display #0 (activities from top to bottom):",
                f"  * Task{{12 A=10012:{package} U=0}}",
                f"    mResumedActivity: {record}",
                f"    topResumedActivity={record}",
                f"    * Hist  #0: {record}",
                f"  ResumedActivity: {record}",
            )


def _display(call: Call, args: list[str]):
    width, height = call.android.phone.size
    call.print(
        "DISPLAY MANAGER (dumpsys display)",
        "  mViewports=[DisplayViewport{type=INTERNAL, valid=true, isActive=true, displayId=0,"
        f" uniqueId='local:0', orientation=0, logicalFrame=Rect(0, 0 - {width}, {height}),"
        f" deviceWidth={width}, deviceHeight={height}}}]",
        f'  mBaseDisplayInfo=DisplayInfo{{"Built-in Screen", real {width} x {height},'
        f" density {call.android.density}, rotation 0, state ON}}",
    )


def _input(call: Call, args: list[str]):
    width, height = call.android.phone.size
    call.print(
        "INPUT MANAGER (dumpsys input)",
        f"  Viewport INTERNAL: displayId=0, uniqueId=local:0, orientation=0,"
        f" logicalFrame=[0, 0, {width}, {height}], physicalFrame=[0, 0, {width}, {height}],"
        f" deviceSize=[{width}, {height}]",
        "      SurfaceOrientation: 0",
        "      InputDeviceOrientation: 0",
        f"      PhysicalWidth: {width}px",
        f"      PhysicalHeight: {height}px",
    )


def _input_method(call: Call, args: list[str]):
    shown = str(call.android.phone.focus is not None).lower()
    call.print("Current Input Method Manager state:", f"  mInputShown={shown}")


def _battery(call: Call, args: list[str]):
    call.print(
        "Current Battery Service state:",
        "  AC powered: false",
        "  USB powered: true",
        "  status: 2",
        "  health: 2",
        "  present: true",
        "  level: 100",
        "  scale: 100",
        "  voltage: 5000",
        "  temperature: 250",
        "  technology: Li-ion",
    )


def _power(call: Call, args: list[str]):
    call.print("POWER MANAGER (dumpsys power)", "  mWakefulness=Awake", "  mIsPowered=true")
    call.print("Display Power: state=ON", "  mHoldingDisplaySuspendBlocker=true")


def _package(call: Call, args: list[str]):
    if not args:
        return
    if args[0] not in call.android.phone.packages:
        call.print(f"Unable to find package: {args[0]}")
        return
    call.print(
        "Packages:",
        f"  Package [{args[0]}] (a1b2c3d):",
        "    userId=10012",
        f"    codePath=/data/app/{args[0]}",
        "    versionCode=1 minSdk=21 targetSdk=33",
        "    versionName=1.0",
        "    flags=[ HAS_CODE ALLOW_BACKUP ]",
        "    firstInstallTime=2025-01-01 12:00:00",
        "    lastUpdateTime=2025-01-01 12:00:00",
        "    signatures=PackageSignatures{a1b2c3d version:2, signatures:[e4f5a6b]}",
    )


def _surface_flinger(call: Call, args: list[str]):
    call.print('Display 0 (HWC display 0): port=0 pnpId=SIM displayName="Built-in Screen"')


def _nothing(call: Call, args: list[str]):
    """A service that has nothing to say."""


_SERVICES = {
    "SurfaceFlinger": _surface_flinger,
    "activity": _activity,
    "alarm": _nothing,
    "battery": _battery,
    "connectivity": _nothing,
    "display": _display,
    "input": _input,
    "input_method": _input_method,
    "package": _package,
    "power": _power,
    "telephony.registry": _nothing,
    "window": _window,
}

COMMANDS = {"dumpsys": dumpsys}
