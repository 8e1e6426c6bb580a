import { Autocomplete, Button, NativeSelect, Select } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { calls } from "../../api/calls";
import { useMay } from "../../api/session";
import { Dialog } from "../../parts/Dialog";
import { Failure, Notice, Waiting } from "../../parts/Notices";
import { Age } from "../../parts/Stale";
import { Foreign } from "../../parts/Texts";
import { strings } from "../../strings";
import { REFRESH } from "../enterprise";

const s = strings.access;
export const TRUSTEES = [
  "everyone",
  "anonymous",
  "authenticated-users",
  "administrators",
  "users",
  "system",
  "local",
  "network",
];
const RIGHTS = [
  "send-message",
  "receive-message",
  "peek-message",
  "receive-journal-message",
  "read",
  "write",
  "full-control",
  "get-properties",
  "set-properties",
  "get-permissions",
  "change-permissions",
  "take-ownership",
  "delete-queue",
];

/** Who may use a queue, in the order in which entries count. */
export function AccessTab({ machine, queue }: { machine: string; queue: string }): ReactNode {
  const mayOperate = useMay("operate");
  const key = ["access", machine, queue];
  const access = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => calls.access(machine, queue, signal),
    refetchInterval: REFRESH,
  });
  const [asking, setAsking] = useState(false);
  if (!access.data)
    return access.error ? <Failure error={access.error} retry={() => void access.refetch()} /> : <Waiting />;
  return (
    <section className="panel stack">
      {access.error && <Failure error={access.error} retry={() => void access.refetch()} />}
      <Age updated={access.dataUpdatedAt} failed={Boolean(access.error)} />
      <p>
        {s.owner} {access.data.owner ? <Foreign text={access.data.owner} /> : strings.none}
      </p>
      {access.data.unrestricted && (
        <Notice tone="warn">
          <p>{s.unrestricted}</p>
        </Notice>
      )}
      <div className="scrolls">
        <table className="plain">
          <caption className="only-readers">{s.title}</caption>
          <thead>
            <tr>
              <th scope="col">{s.kind}</th>
              <th scope="col">{s.trustee}</th>
              <th scope="col">{s.rights}</th>
            </tr>
          </thead>
          <tbody>
            {access.data.rules.map((rule, index) => (
              <tr key={index}>
                <td>
                  <span className={`state ${rule.kind === "allow" ? "good" : "bad"}`}>
                    {rule.kind === "allow" ? s.allow : s.deny}
                  </span>
                </td>
                <td>
                  <Foreign text={rule.name ?? rule.trustee} />
                  {rule.known === false && ` (${s.nobody})`}
                </td>
                <td>
                  {rule.rights.map((right) => (
                    <div key={right}>
                      <Foreign text={right} />
                    </div>
                  ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {access.data.other_entries > 0 && <p className="dim">{s.others(access.data.other_entries)}</p>}
      {mayOperate && (
        <div>
          <Button variant="default" onClick={() => setAsking(true)}>
            {s.change}
          </Button>
        </div>
      )}
      {asking && <ChangeDialog machine={machine} queue={queue} onClose={() => setAsking(false)} />}
    </section>
  );
}

function ChangeDialog({ machine, queue, onClose }: { machine: string; queue: string; onClose: () => void }): ReactNode {
  const queries = useQueryClient();
  const [change, setChange] = useState("allow");
  const [trustee, setTrustee] = useState("");
  const [right, setRight] = useState<string | null>("send-message");
  const save = useMutation({
    mutationFn: () => calls.changeAccess(machine, queue, { change, trustee: trustee.trim(), rights: [right] }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["access", machine, queue] });
      onClose();
    },
  });
  const verb = s.verbs[change as keyof typeof s.verbs];
  return (
    <Dialog title={s.change} onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <NativeSelect
          label={s.kind}
          value={change}
          onChange={(event) => setChange(event.currentTarget.value)}
          data={Object.entries(s.verbs).map(([value, label]) => ({ value, label }))}
        />
        <Autocomplete
          label={s.trustee}
          description={s.trusteeHelp}
          value={trustee}
          onChange={setTrustee}
          data={TRUSTEES}
          required
        />
        <Select label={s.rights} value={right} onChange={setRight} data={RIGHTS} allowDeselect={false} required />
        {trustee.trim() && right && (
          <Notice tone={change === "deny" ? "warn" : "plain"}>
            <p>
              {verb}:{" "}
              <strong>
                <Foreign text={right} />
              </strong>{" "}
              –{" "}
              <strong>
                <Foreign text={trustee.trim()} />
              </strong>
              . {s.stays}
            </p>
          </Notice>
        )}
        {save.error && <Failure error={save.error} />}
        <div className="dialog-actions">
          <Button variant="default" onClick={onClose}>
            {strings.cancel}
          </Button>
          <Button type="submit" loading={save.isPending} disabled={!trustee.trim()}>
            {s.apply}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
