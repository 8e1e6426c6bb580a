import { Button } from "@mantine/core";
import { useMutation, useQueries, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { calls } from "../api/calls";
import { useMay } from "../api/session";
import type { Keys, NodeState } from "../api/types";
import { Failure, Notice, StateMark, Waiting } from "../parts/Notices";
import { Age } from "../parts/Stale";
import { Foreign } from "../parts/Texts";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { REFRESH, useOverview } from "./enterprise";
import { CertificateTable, KeyTable } from "./keys/KeyTables";
import { RotationDialog } from "./keys/RotationDialog";

const s = strings.keys;

/** The keys and certificates of each node: their age and state, and how they are rotated. */
export function KeysScreen(): ReactNode {
  const overview = useOverview();
  const [rotated, setRotated] = useState<NodeState | null>(null);
  const nodes = overview.data?.nodes ?? [];
  const results = useQueries({
    queries: nodes.map((node) => ({
      queryKey: ["keys", node.machine],
      queryFn: ({ signal }: { signal: AbortSignal }) => calls.keys(node.machine, signal),
      refetchInterval: REFRESH,
      enabled: answers(node),
    })),
  });
  const keys = results[nodes.findIndex((node) => node === rotated || node.machine === rotated?.machine)]?.data;
  return (
    <Page title={s.title} about={s.about}>
      {overview.error && <Failure error={overview.error} />}
      <Age updated={overview.dataUpdatedAt} failed={Boolean(overview.error)} />
      {!overview.data && !overview.error && <Waiting />}
      <div className="columns wide">
        {nodes.map((node, index) => (
          <KeysOfNode key={node.machine} node={node} result={results[index]} onRotate={() => setRotated(node)} />
        ))}
      </div>
      {rotated && <RotationDialog machine={rotated.machine} keys={keys} onClose={() => setRotated(null)} />}
    </Page>
  );
}

/** Whether a node can be asked: what is known of another is old. */
function answers(node: NodeState): boolean {
  return node.state === "up" || node.state === "trouble";
}

function KeysOfNode({
  node,
  result,
  onRotate,
}: {
  node: NodeState;
  result: { data?: Keys | undefined; error: unknown; dataUpdatedAt: number } | undefined;
  onRotate: () => void;
}): ReactNode {
  const mayOperate = useMay("operate");
  const queries = useQueryClient();
  const reload = useMutation({
    mutationFn: () => calls.reloadKeys(node.machine),
    onSuccess: (found) => queries.setQueryData(["keys", node.machine], found),
  });
  const keys = result?.data;
  const isOld = !answers(node) || Boolean(result?.error);
  return (
    <section className="panel" aria-label={node.machine}>
      <h2 className="row">
        <Foreign text={node.machine} /> <StateMark state={node.state} />
      </h2>
      {!answers(node) && (
        <p>
          <Foreign text={node.reason} most={300} />
        </p>
      )}
      {answers(node) && Boolean(result?.error) && <Failure error={result?.error} />}
      {answers(node) && !keys && !result?.error && <Waiting />}
      {keys && (
        <>
          <Age updated={result.dataUpdatedAt} failed={isOld} />
          {keys.fault && (
            <Notice tone="bad">
              <p>
                {s.fault} <Foreign text={keys.fault} most={400} />
              </p>
            </Notice>
          )}
          {keys.keys.length ? <KeyTable keys={keys.keys} /> : <p className="dim">{s.none}</p>}
          {keys.certificates.length > 0 && <CertificateTable certificates={keys.certificates} />}
          {reload.error && <Failure error={reload.error} />}
          <div className="row">
            {keys.keys.length > 0 && (
              <Button size="compact-sm" variant="default" onClick={onRotate}>
                {s.rotate}
              </Button>
            )}
            {mayOperate && (
              <Button size="compact-sm" variant="subtle" loading={reload.isPending} onClick={() => reload.mutate()}>
                {s.reload}
              </Button>
            )}
            <span className="dim">{s.version(keys.version)}</span>
          </div>
        </>
      )}
    </section>
  );
}
