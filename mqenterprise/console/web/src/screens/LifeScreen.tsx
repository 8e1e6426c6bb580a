import { Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useEffect, useState } from "react";
import { calls } from "../api/calls";
import { useSession } from "../api/session";
import type { Found, FoundPage, Stale } from "../api/types";
import { classWord } from "../parts/format";
import { Failure, Waiting } from "../parts/Notices";
import { Nothing, StaleNotice } from "../parts/Stale";
import { Foreign, Moment } from "../parts/Texts";
import { Link, useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { useOverview } from "./enterprise";
import { type Move, movesOf } from "./life/moves";
import { shortName } from "./queue/names";

const s = strings.life;
const EVERYWHERE = ["*", "*;journal", "*;deadletter", "*;deadxact"];
const MOST_PAGES = 200;

type Step = Found & { readonly kind: keyof typeof s.kinds; readonly moves: readonly Move[] };

/** A node that has reported that the message passed it. */
interface Passed {
  readonly identifier: string;
  readonly report: Found;
}

interface Life {
  readonly steps: readonly Step[];
  readonly passed: readonly Passed[];
  readonly stale: readonly Stale[];
  readonly whole: boolean;
}

/** All pages of a search, up to a limit. */
async function all(where: string, signal: AbortSignal): Promise<{ pages: FoundPage[]; whole: boolean }> {
  const pages: FoundPage[] = [];
  let cursor = "";
  do {
    const page = await calls.messages({ queue: EVERYWHERE, where: [where], cursor, limit: 100 }, signal);
    pages.push(page);
    cursor = page.next ?? "";
  } while (cursor && pages.length < MOST_PAGES);
  return { pages, whole: !cursor };
}

function kindOf(found: Found): Step["kind"] {
  const name = found.queue.toLowerCase();
  if (name.endsWith(";journal")) return "journal";
  if (name.includes(";dead")) return "dead";
  return /^(direct|public|private|dl|multicast)=/.test(name) ? "outgoing" : "here";
}

/** How the labels of trace reports of a message begin: four digits of its source, its number, and then the hop. */
function labelOf(id: string): string {
  const [source = "", number = ""] = id.toUpperCase().split("\\");
  return `${source.slice(0, 4)}:${Number(number).toString(16).toUpperCase().padStart(8, "0")}:`;
}

/** The nodes that a message passed, in their order: each hop is reported by its sender and by its receiver. */
function passedBy(id: string, reports: readonly Found[]): Passed[] {
  const source = (id.split("\\")[0] ?? "").toLowerCase();
  const start = labelOf(id).length;
  const found = reports
    .filter(({ message }) => message.message_class === "MQMSG_CLASS_REPORT")
    .filter(({ message }) => message.label.toLowerCase().includes(` ${source} `))
    .map((report) => ({
      report,
      identifier: (report.message.identifier.split("\\")[0] ?? "").toLowerCase(),
      hop: Number.parseInt(report.message.label.slice(start, start + 2), 16),
    }));
  const isFirst = (one: { readonly identifier: string }) => Number(one.identifier !== source);
  found.sort((one, other) => one.hop - other.hop || isFirst(one) - isFirst(other));
  return found.filter((one, index) => found.findIndex((other) => other.identifier === one.identifier) === index);
}

/** Copies of the message and the acknowledgments that name it, in the order of their times. */
async function lifeOf(id: string, withAudit: boolean, signal: AbortSignal): Promise<Life> {
  const [copies, answers, reports] = await Promise.all([
    all(`id=${id}`, signal),
    all(`correlation=${id}`, signal),
    all(`label=${labelOf(id)}*`, signal),
  ]);
  const found = [
    ...copies.pages.flatMap((page) => page.found.map((one) => ({ ...one, kind: kindOf(one) }))),
    ...answers.pages.flatMap((page) =>
      page.found.map((one) => ({
        ...one,
        kind: kindOf(one) === "outgoing" ? ("answering" as const) : ("answer" as const),
      })),
    ),
  ];
  const steps: Step[] = await Promise.all(
    found.map(async (one) => ({ ...one, moves: await movesOf(one, withAudit, signal) })),
  );
  steps.sort((one, other) => (one.message.arrival_time ?? "").localeCompare(other.message.arrival_time ?? ""));
  return {
    steps,
    passed: passedBy(
      id,
      reports.pages.flatMap((page) => page.found),
    ),
    stale: copies.pages.at(-1)?.stale ?? [],
    whole: copies.whole && answers.whole && reports.whole,
  };
}

/** The arrival of a message at its node, and its moves there. */
function movesBefore({ machine, message, moves }: Step): ReactNode[] {
  const short = (pathname: string) => <Foreign text={shortName({ machine, pathname })} most={150} />;
  const key = `${machine}/${message.lookup_identifier}`;
  const first = moves[0];
  const unknown = (message.moves ?? 0) - moves.length;
  return [
    <li key={`${key}/arrived`}>
      <strong>{s.arrived}</strong>{" "}
      <span className="dim">
        <Moment at={message.arrival_time} />
      </span>
      <br />
      {unknown <= 0 && first && (
        <>
          {s.in} {short(first.from)}{" "}
        </>
      )}
      {strings.queue.on} <Foreign text={machine} most={60} />
    </li>,
    ...(unknown > 0
      ? [
          <li key={`${key}/unknown`}>
            <strong>{s.movedTimes(unknown)}</strong>
            <br />
            <span className="dim">{s.unknownMove}</span>
          </li>,
        ]
      : []),
    ...moves.map((move, index) => (
      <li key={`${key}/${index}`}>
        <strong>{s.moved}</strong>{" "}
        <span className="dim">
          <Moment at={move.at} />
        </span>
        <br />
        {short(move.from)}
        {" → "}
        {short(move.to)}, {s.by} <Foreign text={move.who || strings.none} most={60} />
        {move.job !== undefined && (
          <>
            {", "}
            <Link to="/jobs/$machine/$number" params={{ machine, number: String(move.job) }}>
              {strings.jobs.number(move.job)}
            </Link>
          </>
        )}
      </li>
    )),
  ];
}

/** What the nodes know of one message: where it is or was, what became of it, and who acknowledged it. */
export function LifeScreen(): ReactNode {
  const [{ id }, setSearch] = useSearch("/life");
  const session = useSession();
  const withAudit = session.roles.includes("administer") && session.features.includes("audit");
  const [draft, setDraft] = useState(id ?? "");
  useEffect(() => setDraft(id ?? ""), [id]);
  const life = useQuery({
    queryKey: ["life", id],
    queryFn: ({ signal }) => lifeOf(id ?? "", withAudit, signal),
    enabled: Boolean(id),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setSearch(() => ({ id: draft.trim() || undefined }), false);
    if (draft.trim() === id) void life.refetch();
  };
  const nodes = useOverview().data?.nodes ?? [];
  const nameOf = (identifier: string) =>
    nodes.find((node) => node.identifier?.toLowerCase() === identifier)?.machine ?? identifier;
  const isEmpty = life.data?.steps.length === 0 && life.data.passed.length === 0;
  const first = life.data?.steps.find((step) => step.kind !== "answer")?.message;
  return (
    <Page title={s.title} about={s.about}>
      <form className="row end" onSubmit={submit}>
        <TextInput
          className="stretch"
          classNames={{ input: "mono" }}
          label={s.identifier}
          placeholder={s.example}
          value={draft}
          onChange={(event) => setDraft(event.currentTarget.value)}
          spellCheck={false}
        />
        <Button type="submit" disabled={!draft.trim()}>
          {s.find}
        </Button>
      </form>
      {life.error && <Failure error={life.error} retry={() => void life.refetch()} />}
      {life.isFetching && !life.data && <Waiting />}
      <StaleNotice stale={life.data?.stale} />
      {life.data && !life.data.whole && <p>{s.cut}</p>}
      {life.data && isEmpty && (
        <p role="status">
          <Nothing text={s.none} stale={life.data.stale} />
        </p>
      )}
      {life.data && !isEmpty && (
        <section className="panel" aria-label={s.title}>
          <ol className="life">
            {first?.sent_time && (
              <li>
                <strong>{s.sent}</strong>{" "}
                <span className="dim">
                  <Moment at={first.sent_time} />
                </span>
                <br />
                {s.to} <Foreign text={first.destination} most={200} />
              </li>
            )}
            {life.data.passed.length > 0 && (
              <li>
                <strong>{s.passed}</strong>
                <br />
                {life.data.passed.map(({ identifier, report }, index) => (
                  <span key={identifier}>
                    {index > 0 && " → "}
                    <Link
                      to="/queues/$machine/$queue/$lookup"
                      params={{
                        machine: report.machine,
                        queue: report.queue,
                        lookup: report.message.lookup_identifier,
                      }}
                    >
                      <Foreign text={nameOf(identifier)} most={60} />
                    </Link>
                  </span>
                ))}
              </li>
            )}
            {life.data.steps.flatMap((step) => [
              ...(step.message.moves ? movesBefore(step) : []),
              <li
                key={`${step.machine}/${step.queue}/${step.message.lookup_identifier}`}
                className={step.kind === "dead" || step.message.message_class.includes("NACK") ? "bad" : undefined}
              >
                <strong>{s.kinds[step.kind]}</strong>{" "}
                <span className="dim">
                  {step.message.moves ? (
                    step.moves.length > 0 && (
                      <>
                        {s.since} <Moment at={step.moves.at(-1)?.at} />
                      </>
                    )
                  ) : (
                    <Moment at={step.message.arrival_time} />
                  )}
                </span>
                <br />
                <Link
                  to="/queues/$machine/$queue/$lookup"
                  params={{ machine: step.machine, queue: step.queue, lookup: step.message.lookup_identifier }}
                >
                  <Foreign text={step.message.label || strings.messages.noLabel} most={100} />
                </Link>{" "}
                {s.in} <Foreign text={shortName({ machine: step.machine, pathname: step.queue })} most={150} />{" "}
                {strings.queue.on} <Foreign text={step.machine} most={60} />
                {step.kind === "outgoing" && (
                  <>
                    {" · "}
                    <Link to="/waiting" search={{ at: step.machine }}>
                      {strings.map.why}
                    </Link>
                  </>
                )}
                <div className="dim">
                  <Foreign text={classWord(step.message.message_class)} most={100} />
                </div>
              </li>,
            ])}
          </ol>
        </section>
      )}
    </Page>
  );
}
