"use strict";
// One step at a time, named by the fragment of the address, so that a step can be linked to.
const steps = [...document.querySelectorAll(".step")];
const links = [...document.querySelectorAll("nav a")];
let current = 0;

function show(i) {
  current = Math.max(0, Math.min(i, steps.length - 1));
  steps.forEach((step, n) => step.classList.toggle("current", n === current));
  links.forEach((link, n) => n === current ? link.setAttribute("aria-current", "step") : link.removeAttribute("aria-current"));
  links[current]?.scrollIntoView({ block: "nearest" });
}

function fromAddress() {
  show(steps.findIndex(step => "#" + step.id === location.hash));
}

addEventListener("hashchange", fromAddress);
addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const to = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: steps.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  show(to);
  history.replaceState(null, "", links[current].hash);
});
document.body.classList.add("scripted");
fromAddress();
