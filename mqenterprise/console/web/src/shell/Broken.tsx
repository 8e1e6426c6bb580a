import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { Failure, Notice } from "../parts/Notices";
import { strings } from "../strings";
import { Page } from "./Page";
import { MissingFileError } from "./screenFiles";

const s = strings.broken;

/** In the place of a screen that cannot be shown: why, and what helps. */
export function Broken({ error }: { error: Error }): ReactNode {
  const isFile = error instanceof MissingFileError;
  const action = (
    <Button size="compact-sm" variant="default" onClick={() => location.reload()}>
      {s.reload}
    </Button>
  );
  return (
    <Page title={s.title}>
      {isFile ? (
        <Notice tone="warn" action={action}>
          <p role="status">{error.isUpgraded ? s.upgraded : s.unreachable}</p>
        </Notice>
      ) : (
        <Failure error={error} retry={() => location.reload()} />
      )}
    </Page>
  );
}
