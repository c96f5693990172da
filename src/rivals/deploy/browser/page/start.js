// No module: it runs where modules do not, and says why the page cannot start.

(() => {
  const say = (message) => {
    const node = document.getElementById("start");
    node.textContent = message;
    node.className = "error";
  };
  if (location.protocol === "file:") {
    say("A browser does not run this page from a file. Open a terminal in its folder, type “python -m http.server”, and open http://localhost:8000 – or put the folder on any web server.");
  } else if (!("noModule" in HTMLScriptElement.prototype) || typeof WebAssembly !== "object") {
    say("This browser is too old for this page; use a newer one.");
  } else {
    addEventListener("error", (event) => {
      const script = event.target?.src;
      if (script) say(`${script.split("/").pop()} could not be loaded; copy the whole folder to the server.`);
    }, true);
  }
})();
