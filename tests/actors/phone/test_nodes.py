"""Views as uiautomator writes and we read them."""

import pytest

from actors.phone.nodes import nodes_from_xml, nodes_to_xml
from tests.actors.phone.simulation import Simulation


def test_a_dump_holds_every_view():
    simulation = Simulation()
    simulation.open("Chrome")
    simulation.enter("url_bar", '<a href="x">&amp;\'</a>')
    simulation.tap("url_bar")
    nodes = simulation.phone.nodes()
    assert nodes_from_xml(nodes_to_xml(nodes)) == nodes
    simulation.open("Settings")
    nodes = simulation.phone.nodes()
    assert nodes_from_xml(nodes_to_xml(nodes)) == nodes
    assert any(node.checked for node in nodes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ERROR: could not get idle state.",
        "<hierarchy><node bounds='[0,0]'/></hierarchy>",
        "<a>",
    ],
)
def test_what_is_no_dump_is_refused(text):
    with pytest.raises(ValueError, match="view"):
        nodes_from_xml(text)
