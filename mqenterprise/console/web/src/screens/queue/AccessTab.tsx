import { Autocomplete, Button, MultiSelect, NativeSelect } from "@mantine/core";
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
const RIGHTS = Object.entries(s.names).map(([value, words]) => ({ value, label: `${words} (${value})` }));

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
        {s.owner} {access.data.owner ? <Foreign text={access.data.owner_name ?? access.data.owner} /> : strings.none}
        {access.data.owner_name && (
          <span className="dim">
            {" "}
            (<Foreign text={access.data.owner ?? ""} />)
          </span>
        )}
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
                      <Right name={right} />
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

/** A right in words, with its name. */
function Right({ name }: { name: string }): ReactNode {
  const words = (s.names as Record<string, string>)[name];
  return words ? (
    <>
      {words} <span className="dim">({name})</span>
    </>
  ) : (
    <Foreign text={name} />
  );
}

function ChangeDialog({ machine, queue, onClose }: { machine: string; queue: string; onClose: () => void }): ReactNode {
  const queries = useQueryClient();
  const [change, setChange] = useState("allow");
  const [trustee, setTrustee] = useState("");
  const [rights, setRights] = useState<string[]>(["send-message"]);
  const save = useMutation({
    mutationFn: () => calls.changeAccess(machine, queue, { change, trustee: trustee.trim(), rights }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["access", machine, queue] });
      onClose();
    },
  });
  // What was refused is no longer said of what is typed since.
  const set =
    <T,>(setter: (value: T) => void) =>
    (value: T) => {
      setter(value);
      save.reset();
    };
  const verb = s.verbs[change as keyof typeof s.verbs];
  return (
    <Dialog title={s.change} onClose={onClose} isChanged={trustee.trim() !== ""}>
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
          onChange={(event) => set(setChange)(event.currentTarget.value)}
          data={Object.entries(s.verbs).map(([value, label]) => ({ value, label }))}
        />
        <Autocomplete
          label={s.trustee}
          description={s.trusteeHelp}
          value={trustee}
          onChange={set(setTrustee)}
          data={TRUSTEES}
          required
          data-autofocus
        />
        <MultiSelect
          label={s.rights}
          value={rights}
          onChange={set(setRights)}
          data={RIGHTS}
          searchable
          hidePickedOptions
          nothingFoundMessage={s.noRight}
        />
        {trustee.trim() && rights.length > 0 && (
          <Notice tone={change === "deny" ? "warn" : "plain"}>
            <p>
              {verb}:{" "}
              <strong>
                <Foreign text={rights.join(", ")} />
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
          <Button type="submit" loading={save.isPending} disabled={!trustee.trim() || rights.length === 0}>
            {s.apply}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
