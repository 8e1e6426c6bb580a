import { Button, Textarea, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { calls } from "../../api/calls";
import type { Message } from "../../api/types";
import { base64Of } from "../../parts/bytes";
import { Dialog } from "../../parts/Dialog";
import { Failure, Notice } from "../../parts/Notices";
import { say } from "../../parts/Said";
import { Foreign, marked } from "../../parts/Texts";
import { broken, sentence } from "../../parts/text";
import { strings } from "../../strings";
import { wordOf } from "../queue/names";
import { TargetInput } from "./TargetInput";
import { returnTarget, useDoubt } from "./targets";

const s = strings.edit;
/** Change a message and send it again; what else changes by that is shown before. */
export function EditDialog({
  machine,
  queue,
  message,
  onClose,
  onDone,
}: {
  machine: string;
  queue: string;
  message: Message;
  onClose: () => void;
  onDone: () => void;
}): ReactNode {
  const queries = useQueryClient();
  const [label, setLabel] = useState(message.label);
  const [text, setText] = useState(message.text ?? "");
  const [headers, setHeaders] = useState<Record<string, string | null>>({ ...message.headers });
  const [target, setTarget] = useState(() => returnTarget(machine, queue, message));
  const changedHeaders = Object.fromEntries(
    Object.entries(headers).filter(([name, value]) => value !== message.headers?.[name]),
  );
  const edits = {
    ...(label === message.label ? {} : { label }),
    ...(message.text !== null && text !== message.text ? { base64: base64Of(text, message.body_type) } : {}),
    ...(Object.keys(changedHeaders).length ? { headers: changedHeaders } : {}),
  };
  const isEdited = Object.keys(edits).length > 0;
  const changes = { ...edits, ...(target.trim() ? { target: target.trim() } : {}) };
  const fault = message.text !== null && text !== message.text ? broken(message.text, text) : null;
  const rehearse = useMutation({
    mutationFn: () => calls.edit(machine, queue, message.lookup_identifier, { ...changes, dry_run: true }),
  });
  const save = useMutation({
    mutationFn: () => calls.edit(machine, queue, message.lookup_identifier, changes),
    onSuccess: (sent) => {
      say(s.sent(wordOf(machine, sent.target)));
      // A list that still names the message that is gone would be shown until it is read again.
      queries.removeQueries({ queryKey: ["messages"], type: "inactive" });
      onDone();
      void queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "session" });
    },
  });
  const doubt = useDoubt(machine, target, rehearse.isSuccess);
  const changed = (action: () => void) => {
    action();
    rehearse.reset();
  };
  return (
    <Dialog title={s.title} onClose={onClose} wide isChanged={isEdited}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (rehearse.isSuccess) save.mutate();
          else rehearse.mutate();
        }}
      >
        <TextInput
          label={s.label}
          value={label}
          maxLength={249}
          onChange={(event) => changed(() => setLabel(event.currentTarget.value))}
          description={marked(label)}
          {...(message.text === null && { "data-autofocus": true })}
        />
        {message.text === null ? (
          <p className="dim">{s.notText}</p>
        ) : (
          <Textarea
            label={s.text}
            value={text}
            rows={8}
            onChange={(event) => changed(() => setText(event.currentTarget.value))}
            spellCheck={false}
            data-autofocus
          />
        )}
        {Object.entries(headers).length > 0 && (
          <details>
            <summary>{s.headers(Object.entries(headers).length)}</summary>
            {Object.entries(headers).map(([name, value]) => (
              <TextInput
                key={name}
                label={<Foreign text={name} />}
                value={value ?? ""}
                description={marked(value ?? "")}
                placeholder={value === null ? "null" : undefined}
                onChange={(event) => changed(() => setHeaders((old) => ({ ...old, [name]: event.target.value })))}
              />
            ))}
          </details>
        )}
        <TargetInput
          machine={machine}
          label={s.target}
          description={s.targetHelp}
          value={target}
          onChange={(value) => changed(() => setTarget(value))}
        />
        {fault && (
          <Notice tone="warn">
            <p role="status">
              {s.noLonger(fault.format)} <Foreign text={fault.reason} most={200} />
            </p>
          </Notice>
        )}
        {rehearse.error && <Failure error={rehearse.error} />}
        {rehearse.data && (
          <Notice tone="warn">
            <p role="status">
              {s.would}{" "}
              <strong>
                <Foreign text={wordOf(machine, rehearse.data.target)} />
              </strong>
            </p>
            {rehearse.data.lost.length > 0 && <p>{s.changes}</p>}
            <ul>
              {rehearse.data.lost.map((one) => (
                <li key={one}>
                  <Foreign text={sentence(one)} />
                </li>
              ))}
            </ul>
          </Notice>
        )}
        {doubt && (
          <Notice tone="warn">
            <p role="status">{doubt}</p>
          </Notice>
        )}
        {save.error && <Failure error={save.error} />}
        <div className="dialog-actions">
          <Button variant="default" onClick={onClose}>
            {strings.cancel}
          </Button>
          <Button type="submit" loading={rehearse.isPending || save.isPending} disabled={!isEdited}>
            {rehearse.isSuccess ? s.confirm : strings.operation.rehearse}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
