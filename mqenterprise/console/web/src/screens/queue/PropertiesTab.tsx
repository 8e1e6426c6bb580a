import { Button, Checkbox, NumberInput, Select, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import { calls } from "../../api/calls";
import { useMay } from "../../api/session";
import type { Privacy, Queue } from "../../api/types";
import { size } from "../../parts/format";
import { Failure, Notice } from "../../parts/Notices";
import { Foreign, Moment, None } from "../../parts/Texts";
import { strings } from "../../strings";

const s = strings.properties;

export function PropertiesTab({ queue, machine, name }: { queue: Queue; machine: string; name: string }): ReactNode {
  const mayOperate = useMay("operate") && ["private", "public"].includes(queue.queue_type) && !name.includes(";");
  const [saved, setSaved] = useState(false);
  return (
    <div className="columns">
      <section className="panel" aria-label={s.now}>
        <h2>{s.now}</h2>
        <dl className="facts">
          <dt>{s.pathname}</dt>
          <dd>
            <Foreign text={queue.pathname} />
          </dd>
          <dt>{s.formatName}</dt>
          <dd>
            <Foreign text={queue.format_name} />
          </dd>
          <dt>{s.identifier}</dt>
          <dd>{queue.identifier ?? <None />}</dd>
          <dt>{s.transactional}</dt>
          <dd>{queue.transactional ? strings.yes : strings.no}</dd>
          {queue.queue_type === "private" && (
            <>
              <dt>{s.declared}</dt>
              <dd>{queue.declared ? s.byDocument : s.byHand}</dd>
            </>
          )}
          <dt>{s.created}</dt>
          <dd>
            <Moment at={queue.create_time} />
          </dd>
          <dt>{s.changed}</dt>
          <dd>
            <Moment at={queue.modify_time} />
          </dd>
          <dt>{s.journal}</dt>
          <dd>{size(queue.journal_total_bytes)}</dd>
          <dt>{s.open}</dt>
          <dd>{queue.active ? strings.yes : strings.no}</dd>
          <dt>{s.multicast}</dt>
          <dd>{queue.multicast_address ? <Foreign text={queue.multicast_address} /> : <None />}</dd>
          <dt>{s.subqueues}</dt>
          <dd>
            {queue.subqueues.length ? (
              queue.subqueues.map((sub) => (
                <div key={sub}>
                  <Foreign text={sub} />
                </div>
              ))
            ) : (
              <None />
            )}
          </dd>
        </dl>
      </section>
      {["private", "public"].includes(queue.queue_type) && (
        <section className="panel" aria-label={s.change}>
          <h2>{s.change}</h2>
          <PropertiesForm
            queue={queue}
            machine={machine}
            name={name}
            locked={!mayOperate}
            saved={saved}
            onSaved={setSaved}
          />
        </section>
      )}
    </div>
  );
}

function PropertiesForm({
  queue,
  machine,
  name,
  locked,
  saved,
  onSaved,
}: {
  queue: Queue;
  machine: string;
  name: string;
  locked: boolean;
  saved: boolean;
  onSaved: (saved: boolean) => void;
}): ReactNode {
  const queries = useQueryClient();
  const before = {
    label: queue.label,
    journaling: queue.journaling,
    quota: queue.quota,
    journal_quota: queue.journal_quota,
    authentication: queue.authentication,
    privacy_level: queue.privacy_level,
    base_priority: queue.base_priority,
  };
  // What others change meanwhile is shown, and takes nothing away of what is typed here.
  const [edits, setEdits] = useState<Partial<typeof before>>({});
  const values = { ...before, ...edits };
  const set = (change: Partial<typeof before>) => {
    setEdits((old) => ({ ...old, ...change }));
    onSaved(false);
  };
  const changed = Object.fromEntries(
    Object.entries(values).filter(([key, value]) => value !== before[key as keyof typeof before]),
  );
  const save = useMutation({
    mutationFn: () => calls.changeQueue(machine, name, changed),
    onSuccess: async () => {
      onSaved(true);
      await queries.invalidateQueries({ queryKey: ["queue", machine, name] });
      setEdits({});
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    save.mutate();
  };
  const number = (value: string | number) => (value === "" ? null : Number(value));
  return (
    <form className="stack" onSubmit={submit}>
      <TextInput
        label={s.label}
        value={values.label}
        maxLength={124}
        disabled={locked}
        onChange={(event) => set({ label: event.currentTarget.value })}
      />
      <NumberInput
        label={s.quota}
        description={s.noQuota}
        min={0}
        value={values.quota ?? ""}
        disabled={locked}
        onChange={(value) => set({ quota: number(value) })}
        hideControls
      />
      <Checkbox
        label={s.journaling}
        checked={values.journaling}
        disabled={locked}
        onChange={(event) => set({ journaling: event.currentTarget.checked })}
      />
      <NumberInput
        label={s.journalQuota}
        description={s.noQuota}
        min={0}
        value={values.journal_quota ?? ""}
        disabled={locked}
        onChange={(value) => set({ journal_quota: number(value) })}
        hideControls
      />
      <Checkbox
        label={s.authentication}
        checked={values.authentication}
        disabled={locked}
        onChange={(event) => set({ authentication: event.currentTarget.checked })}
      />
      <Select
        label={s.privacy}
        value={values.privacy_level}
        disabled={locked}
        allowDeselect={false}
        onChange={(value) => value && set({ privacy_level: value as Privacy })}
        data={Object.entries(s.privacies).map(([value, label]) => ({ value, label }))}
      />
      <NumberInput
        label={s.priority}
        min={-32768}
        max={32767}
        value={values.base_priority}
        disabled={locked}
        onChange={(value) => set({ base_priority: Number(value) })}
        hideControls
      />
      {save.error && <Failure error={save.error} />}
      {saved && Object.keys(changed).length === 0 && (
        <Notice tone="good">
          <p role="status">{s.saved}</p>
        </Notice>
      )}
      {locked ? (
        <p className="dim">{strings.forOperate}</p>
      ) : (
        <>
          {Object.keys(changed).length > 0 && (
            <ul className="diff" aria-label={s.willChange}>
              {Object.entries(changed).map(([key, value]) => (
                <li key={key} className="change">
                  {key}: <span className="old">{shown(before[key as keyof typeof before])}</span> →{" "}
                  <span className="new">{shown(value)}</span>
                </li>
              ))}
            </ul>
          )}
          <Button type="submit" disabled={Object.keys(changed).length === 0} loading={save.isPending}>
            {s.save}
          </Button>
        </>
      )}
    </form>
  );
}

function shown(value: unknown): ReactNode {
  if (value === null || value === "") return strings.none;
  if (typeof value === "boolean") return value ? strings.yes : strings.no;
  return <Foreign text={String(value)} />;
}
