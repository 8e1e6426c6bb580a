import { Button, Checkbox, Select, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import { calls } from "../../api/calls";
import { useMay } from "../../api/session";
import type { Privacy, Queue } from "../../api/types";
import { size } from "../../parts/format";
import { Failure, Notice } from "../../parts/Notices";
import { Foreign, Moment, None } from "../../parts/Texts";
import { isWhole, LARGEST_QUOTA, wholeOrNull, WholeInput } from "../../parts/WholeInput";
import { strings } from "../../strings";

const s = strings.properties;
const KB = 1024;
const LABELS: Record<string, string> = {
  label: s.label,
  journaling: s.journaling,
  quota: s.quota,
  journal_quota: s.journalQuota,
  authentication: s.authentication,
  privacy_level: s.privacy,
  base_priority: s.priority,
};

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
  // Numbers as they are typed: a wrong one stays to be seen, and is not saved.
  const [typed, setTyped] = useState<Partial<Record<"quota" | "journal_quota" | "base_priority", string>>>({});
  const save = useMutation({
    mutationFn: (changes: object) => calls.changeQueue(machine, name, changes),
    onSuccess: async () => {
      onSaved(true);
      await queries.invalidateQueries({ queryKey: ["queue", machine, name] });
      setEdits({});
      setTyped({});
    },
  });
  const numbers = {
    quota: typed.quota ?? String(before.quota ?? ""),
    journal_quota: typed.journal_quota ?? String(before.journal_quota ?? ""),
    base_priority: typed.base_priority ?? String(before.base_priority),
  };
  const isQuota = (text: string, old: number | null) =>
    text.trim() === "" || isWhole(text, 1, LARGEST_QUOTA) || text === String(old);
  const isRight =
    isQuota(numbers.quota, before.quota) &&
    isQuota(numbers.journal_quota, before.journal_quota) &&
    isWhole(numbers.base_priority, -32768, 32767);
  const values = {
    ...before,
    ...edits,
    quota: wholeOrNull(numbers.quota),
    journal_quota: wholeOrNull(numbers.journal_quota),
    base_priority: Number(numbers.base_priority),
  };
  const setNumber = (name: keyof typeof numbers) => (text: string) => {
    setTyped((old) => ({ ...old, [name]: text }));
    onSaved(false);
    save.reset();
  };
  const full = (text: string, bytes: number) =>
    isWhole(text, 1, LARGEST_QUOTA) && Number(text) * KB < bytes ? s.full(size(bytes)) : undefined;
  const set = (change: Partial<typeof before>) => {
    setEdits((old) => ({ ...old, ...change }));
    onSaved(false);
    save.reset();
  };
  const changed = Object.fromEntries(
    Object.entries(values).filter(([key, value]) => value !== before[key as keyof typeof before]),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    save.mutate(changed);
  };
  return (
    <form className="stack" onSubmit={submit}>
      <TextInput
        label={s.label}
        value={values.label}
        maxLength={124}
        disabled={locked}
        onChange={(event) => set({ label: event.currentTarget.value })}
      />
      <WholeInput
        label={s.quota}
        least={1}
        most={LARGEST_QUOTA}
        empty={s.noQuota}
        value={numbers.quota}
        warning={full(numbers.quota, queue.total_bytes)}
        disabled={locked}
        onChange={setNumber("quota")}
      />
      <Checkbox
        label={s.journaling}
        checked={values.journaling}
        disabled={locked}
        onChange={(event) => set({ journaling: event.currentTarget.checked })}
      />
      <WholeInput
        label={s.journalQuota}
        least={1}
        most={LARGEST_QUOTA}
        empty={s.noQuota}
        value={numbers.journal_quota}
        warning={full(numbers.journal_quota, queue.journal_total_bytes)}
        disabled={locked}
        onChange={setNumber("journal_quota")}
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
      <WholeInput
        label={s.priority}
        least={-32768}
        most={32767}
        value={numbers.base_priority}
        disabled={locked}
        onChange={setNumber("base_priority")}
      />
      <div className="stack sticks">
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
            {Object.keys(changed).length > 0 && isRight && (
              <ul className="diff" aria-label={s.willChange}>
                {Object.entries(changed).map(([key, value]) => (
                  <li key={key} className="change">
                    {LABELS[key] ?? key}: <span className="old">{shown(before[key as keyof typeof before])}</span> →{" "}
                    <span className="new">{shown(value)}</span>
                  </li>
                ))}
              </ul>
            )}
            <Button type="submit" disabled={Object.keys(changed).length === 0 || !isRight} loading={save.isPending}>
              {s.save}
            </Button>
          </>
        )}
      </div>
    </form>
  );
}

function shown(value: unknown): ReactNode {
  if (value === null || value === "") return strings.none;
  if (typeof value === "boolean") return value ? strings.yes : strings.no;
  return <Foreign text={String(value)} />;
}
