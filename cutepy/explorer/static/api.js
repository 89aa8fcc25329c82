// Asking the server: JSON, and errors that name the field they are about.

export class ApiError extends Error {
  constructor({ kind, message, field }) {
    super(message);
    this.kind = kind;
    this.field = field;
  }
}

async function read(response) {
  const told = await response.json();
  if (!response.ok) throw new ApiError(told.error);
  return told;
}

export async function ask(path, parameters = {}, signal = undefined) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return read(await fetch(`${path}?${new URLSearchParams(given)}`, { signal }));
}

export async function upload(file, path = "/api/runs") {
  const options = { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } };
  return read(await fetch(`${path}?${new URLSearchParams({ name: file.name })}`, options));
}

export function failed(view, error, form) {
  const box = document.getElementById(`${view}-error`);
  box.textContent = error ? error.message : "";
  box.hidden = !error;
  for (const input of form.elements) {
    const wrong = Boolean(error && error.field && input.name === error.field);
    input.setAttribute("aria-invalid", String(wrong));
    if (wrong) input.closest("details")?.setAttribute("open", "");
    if (wrong) input.setAttribute("aria-describedby", box.id);
    else input.removeAttribute("aria-describedby");
  }
}

let pending = 0;

// `aria-busy` of the body is true from the first unfinished piece of work to the end of the last.
export async function busy(work) {
  pending += 1;
  document.body.setAttribute("aria-busy", "true");
  try {
    return await work();
  } finally {
    pending -= 1;
    if (!pending) document.body.setAttribute("aria-busy", "false");
  }
}
