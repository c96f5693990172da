// The language of the page: the user's choice, else the browser's, else English. A further language
// is one file of sentences and a line in LANGUAGES. The server speaks English; what it says most often
// has sentences, too, whose keys begin with TOLD, and the rest stays as it is.

import english from "./english.js";
import german from "./german.js";

const LANGUAGES = { en: english, de: german };
const KEY = "rivals.language";
const TOLD = "told.";

const wanted = [localStorage.getItem(KEY), ...navigator.languages.map((each) => each.slice(0, 2))];
export const language = wanted.find((each) => Object.hasOwn(LANGUAGES, each ?? "")) ?? "en";
const sentences = LANGUAGES[language];
const plural = new Intl.PluralRules(language);

/** A number with a fixed count of decimals, as the language writes it. */
export const decimal = (number, digits = 0) =>
  number.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });

const filled = (value) => (typeof value === "number" ? value.toLocaleString(language) : value);

function pattern(key, values) {
  const found = sentences[key];
  if (found === undefined) throw new Error(key);
  return Array.isArray(found) ? found[plural.select(values.n) === "one" ? 0 : 1] : found;
}

/** A sentence; {n} in `values` chooses between one and many. */
export const t = (key, values = {}) => pattern(key, values).replace(/\{(\w+)\}/g, (_, name) => filled(values[name]));

/** A sentence whose places in braces are nodes: an array for `append`. */
export const nodes = (key, values) => pattern(key, values).split(/\{(\w+)\}/).map((part, number) => (number % 2 ? values[part] : part));

/** A sentence if there is one with this key, else `other`. */
export const known = (key, other) => (Object.hasOwn(sentences, key) ? t(key) : other);

const patterns = Object.entries(english).filter(([key]) => key.startsWith(TOLD)).map(([key, text]) => {
  const literal = text.replace(/[.*+?^$()|[\]\\]/g, "\\$&");
  return [key, new RegExp(`^${literal.replace(/\{(\w+)\}/g, "(?<$1>.+)")}$`, "s")];
});

/** What the server says, in the language of the page if it is one of its usual sentences. */
export function told(message) {
  for (const [key, pattern] of patterns) {
    const found = pattern.exec(message);
    if (found) return t(key, found.groups);
  }
  return message;
}

export const listed = (all) => (all.length < 2 ? all.join("") : t("and", { first: all.slice(0, -1).join(", "), last: all.at(-1) }));

/** Put sentences where the document names them: data-t, data-t-label and data-t-placeholder. */
export function translate() {
  document.documentElement.lang = language;
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of document.querySelectorAll("[data-t-label]")) node.setAttribute("aria-label", t(node.dataset.tLabel));
  for (const node of document.querySelectorAll("[data-t-placeholder]")) node.placeholder = t(node.dataset.tPlaceholder);
}

/** A choice of languages; another one loads the page anew. */
export function languageChoice() {
  const choice = document.createElement("select");
  choice.id = "language";
  choice.setAttribute("aria-label", t("language.choose"));
  for (const [code, { language: name }] of Object.entries(LANGUAGES)) choice.append(new Option(name, code, false, code === language));
  for (const option of choice.options) option.lang = option.value;
  choice.addEventListener("change", () => { localStorage.setItem(KEY, choice.value); location.reload(); });
  return choice;
}
