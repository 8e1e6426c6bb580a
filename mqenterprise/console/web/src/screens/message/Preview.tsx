import { ActionIcon, Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { calls } from "../../api/calls";
import { useMay } from "../../api/session";
import { Failure, Notice, Waiting } from "../../parts/Notices";
import { Foreign, Moment } from "../../parts/Texts";
import { Icon } from "../../shell/icons";
import { Link } from "../../router";
import { strings } from "../../strings";
import { Decoded } from "./Bodies";

const s = strings.message;

/** A message beside the list that it is in: its body, and the way to the one before and after. */
export function Preview({
  machine,
  queue,
  lookup,
  onPrevious,
  onNext,
  onClose,
}: {
  machine: string;
  queue: string;
  lookup: string;
  onPrevious: (() => void) | undefined;
  onNext: (() => void) | undefined;
  onClose: () => void;
}): ReactNode {
  const maySeeBodies = useMay("bodies");
  const message = useQuery({
    queryKey: ["message", machine, queue, lookup, maySeeBodies],
    queryFn: ({ signal }) => calls.message(machine, queue, lookup, maySeeBodies, signal),
    staleTime: 60_000,
  });
  const found = message.data;
  return (
    <section className="panel preview" aria-label={s.preview}>
      <div className="row">
        <Button size="compact-sm" variant="default" disabled={!onPrevious} onClick={onPrevious}>
          {strings.messages.previous}
        </Button>
        <Button size="compact-sm" variant="default" disabled={!onNext} onClick={onNext}>
          {strings.messages.next}
        </Button>
        <Link to="/queues/$machine/$queue/$lookup" params={{ machine, queue, lookup }}>
          {s.whole}
        </Link>
        <ActionIcon variant="subtle" color="gray" ml="auto" aria-label={s.closePreview} onClick={onClose}>
          <Icon name="close" />
        </ActionIcon>
      </div>
      {message.error && <Failure error={message.error} />}
      {!found && !message.error && <Waiting />}
      {found && (
        <>
          <h2>{found.label ? <Foreign text={found.label} most={200} /> : strings.messages.noLabel}</h2>
          <p className="dim">
            {s.facts.sent} <Moment at={found.sent_time} />
            {(found.sender ?? found.claimed_sender) && (
              <>
                {" · "}
                <Foreign text={found.sender ?? found.claimed_sender ?? ""} most={80} />
              </>
            )}
          </p>
          {maySeeBodies ? (
            <Decoded message={found} />
          ) : (
            <Notice tone="plain">
              <p>{s.noBodies}</p>
            </Notice>
          )}
        </>
      )}
    </section>
  );
}
