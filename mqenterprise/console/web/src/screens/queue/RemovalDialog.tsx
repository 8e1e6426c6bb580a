import { Button, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { calls } from "../../api/calls";
import { Dialog } from "../../parts/Dialog";
import { count } from "../../parts/format";
import { Failure, Notice } from "../../parts/Notices";
import { say } from "../../parts/Said";
import { Foreign } from "../../parts/Texts";
import { visible } from "../../parts/text";
import { strings } from "../../strings";
import { shortName } from "./names";

const s = strings.removal;

/** Deleting a queue or all of its messages cannot be taken back: the name has to be typed. */
export function RemovalDialog({
  machine,
  queue,
  what,
  messages,
  onClose,
  onRemoved,
}: {
  machine: string;
  queue: string;
  what: "remove" | "purge";
  messages: number | undefined;
  onClose: () => void;
  onRemoved: () => void;
}): ReactNode {
  const queries = useQueryClient();
  const name = shortName({ machine, pathname: queue });
  const [typed, setTyped] = useState("");
  const act = useMutation({
    mutationFn: () => (what === "remove" ? calls.deleteQueue(machine, queue) : calls.purge(machine, queue)),
    onSuccess: () => {
      void queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "session" });
      say(s.done[what](visible(name)));
      onClose();
      if (what === "remove") onRemoved();
    },
  });
  return (
    <Dialog title={s.title[what]} onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          act.mutate();
        }}
      >
        <Notice tone="bad">
          <p>
            {s.about[what](count(messages ?? 0))}{" "}
            <strong>
              <Foreign text={queue} />
            </strong>
          </p>
        </Notice>
        <TextInput
          label={
            <>
              {s.type}{" "}
              <strong>
                <Foreign text={name} />
              </strong>{" "}
              {s.toConfirm}
            </>
          }
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
          autoComplete="off"
          data-autofocus
        />
        {act.error && <Failure error={act.error} />}
        <div className="dialog-actions">
          <Button variant="default" onClick={onClose}>
            {strings.cancel}
          </Button>
          <Button
            type="submit"
            color="red"
            loading={act.isPending}
            disabled={typed !== name && typed !== visible(name)}
          >
            {s.confirm[what]}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
