/** The files of screens, which are fetched when a screen is opened: after an upgrade of the console they have other names. */

export class MissingFileError extends Error {
  constructor(readonly isUpgraded: boolean) {
    super("a file of the console is missing");
  }
}

/** Whether the console now has another start file than this page. */
async function isUpgraded(): Promise<boolean> {
  const own = document.querySelector<HTMLScriptElement>("script[type=module][src]")?.getAttribute("src");
  try {
    const response = await fetch(new URL(".", document.baseURI), { cache: "no-store" });
    return response.ok && own !== null && own !== undefined && !(await response.text()).includes(own);
  } catch {
    return false;
  }
}

/** A file of a screen. Throws `MissingFileError`. */
export async function fileOf<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch {
    throw new MissingFileError(await isUpgraded());
  }
}
