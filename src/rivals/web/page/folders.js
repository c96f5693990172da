// Dropped or chosen files by class: {name of the task, classes: Map(name → files), loose: files}.

const IGNORED = /^(\.|thumbs\.db$|desktop\.ini$)/i;

const readAll = async (folder) => {
  const reader = folder.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return found;
    found.push(...some);
  }
};

const fileOf = (entry) => new Promise((done, fail) => entry.file(done, fail));

/** Add [path parts, file] for every file in a dropped entry, at most two folders deep, to `found`. */
async function walk(entry, path, found) {
  if (IGNORED.test(entry.name)) return;
  if (entry.isFile) found.push([[...path, entry.name], await fileOf(entry)]);
  else if (path.length < 3) {
    for (const inside of await readAll(entry)) await walk(inside, [...path, entry.name], found);
  }
}

export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return byClass([...transfer.files].map((file) => [[file.name], file]));
  const found = [];
  for (const entry of entries) await walk(entry, [], found);
  return byClass(found);
}

export const chosen = (files) =>
  byClass([...files].map((file) => [(file.webkitRelativePath || file.name).split("/"), file]));

function byClass(found) {
  const task = { name: null, classes: new Map(), loose: [] };
  for (const [path, file] of found) {
    if (path.some((part) => IGNORED.test(part))) continue;
    if (path.length === 1) task.loose.push(file);
    else {
      const name = path[path.length - 2];
      if (path.length > 2) task.name = path[path.length - 3];
      task.classes.set(name, [...(task.classes.get(name) || []), file]);
    }
  }
  task.classes = new Map([...task.classes].sort(([one], [other]) => one.localeCompare(other)));
  return task;
}
