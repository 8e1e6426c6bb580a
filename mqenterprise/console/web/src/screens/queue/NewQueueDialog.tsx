import { Autocomplete, Button, Checkbox, NativeSelect, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { calls } from "../../api/calls";
import { Dialog } from "../../parts/Dialog";
import { Failure, Notice } from "../../parts/Notices";
import { visible } from "../../parts/text";
import { isWhole, LARGEST_QUOTA, wholeOrNull, WholeInput } from "../../parts/WholeInput";
import { go, hrefOf } from "../../router";
import { strings } from "../../strings";
import { TRUSTEES } from "./AccessTab";

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
  const [where, setWhere] = useState(machine ?? machines[0] ?? "");
  const [name, setName] = useState("");
  const [label, setLabel] = useState("");
  const [transactional, setTransactional] = useState(false);
  const [journaling, setJournaling] = useState(false);
  const [quota, setQuota] = useState("");
  const [sender, setSender] = useState("");
  const [receiver, setReceiver] = useState("");
  const [made, setMade] = useState<string | null>(null);
  const create = useMutation({
    mutationFn: async () => {
      const queue = await calls.createQueue(where, {
        name: name.includes("\\") ? name.trim() : `.\\private$\\${name.trim()}`,
        label,
        transactional,
        journaling,
        quota: wholeOrNull(quota),
      });
      setMade(queue.pathname);
      const rights = [
        [sender, "send-message"],
        [receiver, "receive-message"],
      ] as const;
      for (const [trustee, right] of rights)
        if (trustee.trim())
          await calls.changeAccess(where, queue.pathname, {
            change: "allow",
            trustee: trustee.trim(),
            rights: [right],
          });
      return queue;
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ["queues"] }),
    onSuccess: (queue) => {
      onClose();
      go({
        to: "/queues/$machine/$queue",
        params: { machine: where, queue: queue.pathname },
        search: { tab: "properties" },
      });
    },
  });
  return (
    <Dialog title={s.title} onClose={onClose} isChanged={made === null && Boolean(name || label || sender || receiver)}>
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
        <WholeInput
          label={strings.properties.quota}
          least={1}
          most={LARGEST_QUOTA}
          empty={strings.properties.noQuota}
          value={quota}
          onChange={setQuota}
        />
        <div className="row end">
          <Autocomplete
            className="stretch"
            label={s.senders}
            description={s.accessHelp}
            value={sender}
            onChange={setSender}
            data={TRUSTEES}
          />
          <Autocomplete
            className="stretch"
            label={s.receivers}
            description={s.accessHelp}
            value={receiver}
            onChange={setReceiver}
            data={TRUSTEES}
          />
        </div>
        {create.error && made !== null && (
          <Notice
            tone="warn"
            action={
              <Button
                component="a"
                size="compact-sm"
                variant="default"
                href={hrefOf({
                  to: "/queues/$machine/$queue",
                  params: { machine: where, queue: made },
                  search: { tab: "access" },
                })}
              >
                {s.seeAccess}
              </Button>
            }
          >
            <p>{s.onlyMade}</p>
          </Notice>
        )}
        {create.error && <Failure error={create.error} />}
        <div className="dialog-actions">
          <Button variant="default" onClick={onClose}>
            {strings.cancel}
          </Button>
          <Button
            type="submit"
            loading={create.isPending}
            disabled={!name.trim() || made !== null || !(quota.trim() === "" || isWhole(quota, 1, LARGEST_QUOTA))}
          >
            {s.confirm}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
