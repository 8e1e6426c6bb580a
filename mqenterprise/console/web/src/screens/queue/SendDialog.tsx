import { Button, Checkbox, NativeSelect, Textarea, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { calls } from "../../api/calls";
import { Dialog } from "../../parts/Dialog";
import { Failure } from "../../parts/Notices";
import { say } from "../../parts/Said";
import { strings } from "../../strings";

const s = strings.send;
const PRIORITIES = Array.from({ length: 8 }, (_, priority) => String(priority));

/** A message to try a queue with: text, label and the properties that matter. */
export function SendDialog({
  machine,
  queue,
  transactional,
  onClose,
}: {
  machine: string;
  queue: string;
  transactional: boolean;
  onClose: () => void;
}): ReactNode {
  const queries = useQueryClient();
  const [text, setText] = useState("");
  const [label, setLabel] = useState("");
  const [encoding, setEncoding] = useState("utf-8");
  const [priority, setPriority] = useState("3");
  const [recoverable, setRecoverable] = useState(true);
  const send = useMutation({
    mutationFn: () =>
      calls.send(machine, queue, {
        messages: [
          {
            text,
            label,
            encoding,
            recoverable,
            ...(transactional ? {} : { priority: Number(priority) }),
            ...(encoding === "utf-8" ? {} : { body_type: 8 }),
          },
        ],
      }),
    onSuccess: () => {
      void queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "session" });
      say(s.done);
      onClose();
    },
  });
  return (
    <Dialog title={s.title} onClose={onClose} isChanged={text !== "" || label !== ""}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          send.mutate();
        }}
      >
        <TextInput
          label={s.label}
          value={label}
          maxLength={249}
          onChange={(event) => setLabel(event.currentTarget.value)}
          data-autofocus
        />
        <Textarea
          label={s.text}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          autosize={false}
          rows={6}
        />
        <NativeSelect
          label={s.encoding}
          value={encoding}
          onChange={(event) => setEncoding(event.currentTarget.value)}
          data={[
            { value: "utf-8", label: "UTF-8" },
            { value: "utf-16-le", label: "UTF-16 (VT_BSTR)" },
          ]}
        />
        {!transactional && (
          <NativeSelect
            label={s.priority}
            value={priority}
            onChange={(event) => setPriority(event.currentTarget.value)}
            data={PRIORITIES}
          />
        )}
        {!transactional && (
          <Checkbox
            label={s.recoverable}
            checked={recoverable}
            onChange={(event) => setRecoverable(event.currentTarget.checked)}
          />
        )}
        <p className="dim">{transactional ? s.aboutTransactional : s.about}</p>
        {send.error && <Failure error={send.error} />}
        <div className="dialog-actions">
          <Button variant="default" onClick={onClose}>
            {strings.cancel}
          </Button>
          <Button type="submit" loading={send.isPending}>
            {s.confirm}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
