import { type ReactNode, useEffect } from "react";
import { Said } from "../parts/Said";
import { visible } from "../parts/text";
import { strings } from "../strings";

/** The frame of a screen: its heading, which is the title of the window too, and what can be done there. */
export function Page({
  title,
  heading,
  about,
  actions,
  children,
}: {
  title: string;
  heading?: ReactNode;
  about?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}): ReactNode {
  useEffect(() => {
    document.title = `${visible(title)} · ${strings.product}`;
  }, [title]);
  return (
    <>
      <header className="page-head">
        <div>
          <h1>{heading ?? title}</h1>
          {about && <p className="dim">{about}</p>}
        </div>
        {actions && <div className="actions">{actions}</div>}
      </header>
      <Said />
      {children}
    </>
  );
}
