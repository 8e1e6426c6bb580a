import type { ReactNode } from "react";
import { Link } from "../router";
import { strings } from "../strings";
import { Page } from "./Page";

export function Missing(): ReactNode {
  return (
    <Page title={strings.missing.title}>
      <p>
        {strings.missing.sentence} <Link to="/">{strings.nav.map}</Link>
      </p>
    </Page>
  );
}
