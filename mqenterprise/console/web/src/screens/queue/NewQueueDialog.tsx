import { Button, Checkbox, NativeSelect, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { calls } from "../../api/calls";
import { Dialog } from "../../parts/Dialog";
import { Failure } from "../../parts/Notices";
import { visible } from "../../parts/text";
import { strings } from "../../strings";

const s = strings.newQueue;

export function NewQueueDialog({
  machines,
  machine,
  onClose,
}: {
  machines: readonly string[];
  machine: string | undefined;
  onClose: () => void;
}): ReactNode {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [where, setWhere] = useState(machine ?? machines[0] ?? "");
  const [name, setName] = useState("");
  const [label, setLabel] = useState("");
  const [transactional, setTransactional] = useState(false);
  const [journaling, setJournaling] = useState(false);
  const create = useMutation({
    mutationFn: () => calls.createQueue(where, { name: name.trim(), label, transactional, journaling }),
    onSuccess: (queue) => {
      void queries.invalidateQueries({ queryKey: ["queues"] });
      onClose();
      void navigate({
        to: "/queues/$machine/$queue",
        params: { machine: where, queue: queue.pathname },
        search: { tab: "properties" },
      });
    },
  });
  return (
    <Dialog title={s.title} onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          create.mutate();
        }}
      >
        <NativeSelect
          label={strings.queues.machine}
          value={where}
          onChange={(event) => setWhere(event.currentTarget.value)}
          data={machines.map((one) => ({ value: one, label: visible(one) }))}
        />
        <TextInput
          label={s.name}
          description={s.nameHelp}
          value={name}
          maxLength={512}
          onChange={(event) => setName(event.currentTarget.value)}
          required
          data-autofocus
        />
        <TextInput
          label={strings.queues.label}
          value={label}
          maxLength={124}
          onChange={(event) => setLabel(event.currentTarget.value)}
        />
        <Checkbox
          label={s.transactional}
          checked={transactional}
          onChange={(event) => setTransactional(event.currentTarget.checked)}
        />
        <Checkbox
          label={strings.properties.journaling}
          checked={journaling}
          onChange={(event) => setJournaling(event.currentTarget.checked)}
        />
        {create.error && <Failure error={create.error} />}
        <div className="dialog-actions">
          <Button variant="default" onClick={onClose}>
            {strings.cancel}
          </Button>
          <Button type="submit" loading={create.isPending} disabled={!name.trim()}>
            {s.confirm}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
