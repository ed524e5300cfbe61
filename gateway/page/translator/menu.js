// A menu of other words, below the word that was chosen.

import { element, get } from "./dom.js";

export function menuItem(text, chosen) {
  const item = Object.assign(element("button", "", text), { type: "button", dir: "auto" });
  item.setAttribute("role", "menuitem");
  item.addEventListener("click", chosen);
  return item;
}

export function openMenu(button, items) {
  const menu = get("menu"), place = button.getBoundingClientRect();
  closeMenu();
  menu.replaceChildren(...items);
  menu.hidden = false;
  menu.opener = button;
  button.setAttribute("aria-expanded", "true");
  const right = document.documentElement.clientWidth - menu.offsetWidth - 8;
  menu.style.left = `${Math.max(Math.min(place.left, right), 8) + scrollX}px`;
  menu.style.top = `${place.bottom + scrollY + 4}px`;
  menu.firstElementChild.focus();
}

export function closeMenu() {
  get("menu").hidden = true;
  get("menu").opener?.removeAttribute("aria-expanded");
}

// The keys of a menu: WAI-ARIA Authoring Practices, "Menu and Menubar Pattern".
function moveInMenu(event) {
  const menu = get("menu"), items = [...menu.children], place = items.indexOf(document.activeElement);
  if (menu.hidden) return;
  if (event.key === "Escape" || event.key === "Tab") {
    closeMenu();
    menu.opener.focus(); // Tab goes on from there
  }
  const next = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: -1 }[event.key];
  if (next === undefined) return;
  items.at(next % items.length).focus();
  event.preventDefault();
}

document.addEventListener("keydown", moveInMenu);
document.addEventListener("pointerdown", (event) => get("menu").contains(event.target) || closeMenu());
