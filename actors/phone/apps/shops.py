"""The shops' pages: home, search results, a product, the cart. All five are built alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote_plus

from actors.phone import ui

SITES: dict[str, ui.Color] = {
    "ebay.com": (150, 60, 200),
    "walmart.com": (0, 84, 230),
    "bestbuy.com": (250, 226, 0),
    "costco.com": (228, 24, 56),
    "newegg.com": (250, 140, 20),
}
SEARCH_BOX: ui.Box = (14, 154, 346, 204)
MOST_ITEMS = 20  # in all the carts together
_TOP = 214  # where a page's own content begins, in dp
_OFFERS = ("{}", "{} bundle", "{} refurbished", "case for {}")


class CartItem(NamedTuple):
    site: str
    item: str


def header(site: str, go: Callable[[str], None]) -> list[ui.View]:
    color = SITES[site]
    cart = f"https://www.{site}/cart"
    return [
        ui.View("bar", (0, 92, ui.WIDTH, 146), site, color, id="site"),
        ui.View(
            "button",
            (286, 94, 354, 144),
            "Cart",
            ui.WHITE,
            description="Cart",
            id="cart",
            on_tap=lambda: go(cart),
        ),
    ]


def page(
    site: str,
    path: str,
    query: str,
    cart: Sequence[str],
    go: Callable[[str], None],
    add: Callable[[str], None],
) -> list[ui.View]:
    """The views below the search field of one page.

    Args:
      site: A key of SITES.
      path: The URL's path.
      query: The URL's q, or "".
      cart: What this site's cart holds.
      go: Loads a URL.
      add: Puts a product into the cart.
    """
    product = re.fullmatch(r"/product/([1-4])", path)
    if product and query:
        return _product(_offer(query, int(product[1])), cart, add)
    if path == "/search" and query:
        return [_card(site, query, number, go) for number in range(1, len(_OFFERS) + 1)]
    if path == "/cart":
        return _cart(cart)
    return _home(site)


def _offer(query: str, number: int) -> str:
    return _OFFERS[number - 1].format(query)


def _price(item: str) -> str:
    return f"${20 + sum(map(ord, item)) % 400}.00"


def _card(site: str, query: str, number: int, go: Callable[[str], None]) -> ui.View:
    item = _offer(query, number)
    y = _TOP + (number - 1) * 106
    url = f"https://www.{site}/product/{number}?q={quote_plus(query)}"
    return ui.View(
        "card",
        (10, y, 350, y + 98),
        item,
        ui.shade(item),
        id=f"entry_{number}",
        detail=_price(item),
        on_tap=lambda: go(url),
    )


def _product(item: str, cart: Sequence[str], add: Callable[[str], None]) -> list[ui.View]:
    there = item in cart
    return [
        ui.View("box", (70, 224, 290, 424), color=ui.shade(item)),
        ui.View("label", (20, 440, 340, 490), item, ui.INK, id="product", detail=_price(item)),
        ui.View(
            "button",
            (30, 520, 330, 590),
            "In your cart" if there else "Add to cart",
            (190, 190, 194) if there else ui.PALETTE[4],
            id="add_to_cart",
            on_tap=lambda: add(item),
        ),
    ]


def _cart(cart: Sequence[str]) -> list[ui.View]:
    count = f"Shopping cart: {len(cart)}"
    heading = ui.View("label", (20, _TOP, 340, _TOP + 30), count, ui.INK, id="cart_title")
    items = [
        ui.View(
            "card", (10, 252 + i * 88, 350, 334 + i * 88), item, ui.shade(item), detail=_price(item)
        )
        for i, item in enumerate(cart[-4:])
    ]
    return [heading, *items]


def _home(site: str) -> list[ui.View]:
    tiles = [
        ui.View(
            "box",
            (14 + i % 2 * 170, 404 + i // 2 * 112, 176 + i % 2 * 170, 506 + i // 2 * 112),
            color=ui.shade(site + str(i)),
        )
        for i in range(4)
    ]
    return [ui.View("box", (14, _TOP, 346, 394), color=SITES[site]), *tiles]
