import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { calls } from "../api/calls";
import { useMay } from "../api/session";
import type { Message } from "../api/types";
import { base64Of, bytesOf, save } from "../parts/bytes";
import { Dump } from "../parts/Dump";
import { classWord, count, exactSize, size } from "../parts/format";
import { Failure, Notice, Waiting } from "../parts/Notices";
import { Age } from "../parts/Stale";
import { Foreign, Moment, None } from "../parts/Texts";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { REFRESH } from "./enterprise";
import { EditDialog } from "./operation/EditDialog";
import { type Kind, OperationDialog } from "./operation/OperationDialog";
import { shortName } from "./queue/names";

const s = strings.message;
const LONGEST_SHOWN = 200_000;
const SHORT = 4000;

export function MessageScreen(): ReactNode {
  const { machine, queue, lookup } = useParams({ from: "/queues/$machine/$queue/$lookup" });
  const mayOperate = useMay("operate");
  const maySeeBodies = useMay("bodies");
  const navigate = useNavigate();
  const [operation, setOperation] = useState<Kind | "edit" | null>(null);
  const message = useQuery({
    queryKey: ["message", machine, queue, lookup, maySeeBodies],
    queryFn: ({ signal }) => calls.message(machine, queue, lookup, maySeeBodies, signal),
  });
  // Whether it is still there is asked without its body.
  const there = useQuery({
    queryKey: ["message", machine, queue, lookup, "there"],
    queryFn: ({ signal }) => calls.message(machine, queue, lookup, false, signal),
    refetchInterval: REFRESH,
    enabled: message.isSuccess,
  });
  const error = message.error ?? there.error;
  const back = () => void navigate({ to: "/queues/$machine/$queue", params: { machine, queue } });
  const found = message.data;
  return (
    <Page
      title={found?.label || s.title}
      heading={found?.label ? <Foreign text={found.label} /> : s.title}
      about={
        <>
          {s.in}{" "}
          <Link to="/queues/$machine/$queue" params={{ machine, queue }}>
            <Foreign text={shortName({ machine, pathname: queue })} />
          </Link>{" "}
          {strings.queue.on} <Foreign text={machine} />
        </>
      }
      actions={
        <>
          {mayOperate && maySeeBodies && found && !found.unreadable && (
            <Button onClick={() => setOperation("edit")}>{s.edit}</Button>
          )}
          {mayOperate &&
            found &&
            (["move", "copy", "return", "delete"] as const).map((kind) => (
              <Button
                key={kind}
                variant="default"
                color={kind === "delete" ? "red" : undefined}
                title={strings.operation.about[kind]}
                onClick={() => setOperation(kind)}
              >
                {strings.operation.verb[kind]}…
              </Button>
            ))}
          {found && (
            <Button
              component={Link}
              to="/life"
              search={{ id: found.identifier } as never}
              variant="default"
              title={strings.life.about}
            >
              {s.life}
            </Button>
          )}
        </>
      }
    >
      {error && <Failure error={error} retry={() => void (message.error ? message : there).refetch()} />}
      <Age updated={there.dataUpdatedAt || message.dataUpdatedAt} failed={Boolean(error)} />
      {!found && !message.error && <Waiting />}
      {found?.unreadable && (
        <Notice tone="bad">
          <p>
            {s.unreadable} <Foreign text={found.unreadable} />
          </p>
        </Notice>
      )}
      {found && <Facts message={found} />}
      {found &&
        (maySeeBodies ? (
          <Bodies message={found} />
        ) : (
          <Notice tone="plain">
            <p>{s.noBodies}</p>
          </Notice>
        ))}
      {operation === "edit" && found && (
        <EditDialog machine={machine} queue={queue} message={found} onClose={() => setOperation(null)} onDone={back} />
      )}
      {operation && operation !== "edit" && (
        <OperationDialog
          kind={operation}
          chosen={{ machine, queues: [queue], messages: [lookup] }}
          onClose={() => setOperation(null)}
        />
      )}
    </Page>
  );
}

function Text({ text }: { text: string | null }): ReactNode {
  return text ? <Foreign text={text} /> : <None />;
}

function Facts({ message }: { message: Message }): ReactNode {
  const f = s.facts;
  return (
    <section className="panel" aria-label={s.properties}>
      <dl className="facts double">
        <dt>{f.identifier}</dt>
        <dd className="mono">{message.identifier ? <Foreign text={message.identifier} /> : <None />}</dd>
        <dt>{f.lookup}</dt>
        <dd className="mono">{message.lookup_identifier}</dd>
        <dt>{f.class}</dt>
        <dd>
          <Text text={classWord(message.message_class)} />
        </dd>
        <dt>{f.sent}</dt>
        <dd>
          <Moment at={message.sent_time} />
        </dd>
        <dt>{f.arrived}</dt>
        <dd>
          <Moment at={message.arrival_time} />
        </dd>
        <dt>{f.destination}</dt>
        <dd>
          <Text text={message.destination} />
        </dd>
        <dt>{f.response}</dt>
        <dd>
          <Text text={message.response_queue} />
        </dd>
        <dt>{f.administration}</dt>
        <dd>
          <Text text={message.administration_queue} />
        </dd>
        <dt>{f.correlation}</dt>
        <dd className="mono">{message.correlation_identifier ?? <None />}</dd>
        <dt>{f.delivery}</dt>
        <dd>
          {message.transactional
            ? strings.messages.transactional
            : message.recoverable
              ? strings.messages.recoverable
              : strings.messages.express}
          , {f.priority} {message.priority}
        </dd>
        <dt>{f.sender}</dt>
        <dd>
          {message.sender ? (
            <>
              <Foreign text={message.sender} /> <span className="state good">{f.proved}</span>
            </>
          ) : message.claimed_sender ? (
            <>
              <Foreign text={message.claimed_sender} /> <span className="state warn">{f.claimed}</span>
            </>
          ) : (
            <None />
          )}
        </dd>
        <dt>{f.size}</dt>
        <dd>{exactSize(message.body_size)}</dd>
        <dt>{f.aborted}</dt>
        <dd>{message.aborted_receives}</dd>
        <dt>{f.app}</dt>
        <dd>{message.app_specific}</dd>
      </dl>
    </section>
  );
}

function Bodies({ message }: { message: Message }): ReactNode {
  const headers = Object.entries(message.headers ?? {});
  const raw = message.base64 ?? (message.text === null ? "" : base64Of(message.text, message.body_type));
  return (
    <>
      {headers.length > 0 && (
        <section className="panel" aria-label={s.headers}>
          <h2>
            {s.headers}{" "}
            {message.headers_format && (
              <span className="dim">
                (<Foreign text={message.headers_format} />)
              </span>
            )}
          </h2>
          <div className="scrolls">
            <table className="plain">
              <thead className="only-readers">
                <tr>
                  <th scope="col">{s.header}</th>
                  <th scope="col">{s.value}</th>
                </tr>
              </thead>
              <tbody>
                {headers.map(([name, value]) => (
                  <tr key={name}>
                    <th scope="row" className="mono">
                      <Foreign text={name} />
                    </th>
                    <td className="mono">
                      <Foreign text={String(value)} lines />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
      <div className="side-by-side">
        <section className="panel" aria-label={s.decoded}>
          <h2>
            {s.decoded}{" "}
            {message.format && (
              <span className="dim">
                (<Foreign text={message.format} />)
              </span>
            )}
          </h2>
          {message.undecoded && (
            <p className="dim">
              <Foreign text={message.undecoded} />
            </p>
          )}
          <Decoded message={message} />
        </section>
        <section className="panel" aria-label={s.raw}>
          <h2 className="row">
            {s.raw}
            <Button
              size="compact-sm"
              variant="default"
              ml="auto"
              onClick={() => save(message.packet ?? raw, message.lookup_identifier)}
            >
              {s.download}
            </Button>
          </h2>
          <Dump base64={message.packet ?? raw} label={s.raw} />
          {message.extension && (
            <details>
              <summary>{s.extension(size(message.extension_size))}</summary>
              <Dump base64={message.extension} label={s.extensionBytes} />
            </details>
          )}
        </section>
      </div>
    </>
  );
}

function Decoded({ message }: { message: Message }): ReactNode {
  const { decoded, text } = message;
  const isValue = decoded !== null && decoded !== undefined && typeof decoded !== "string";
  const first = isValue ? JSON.stringify(decoded, null, 2) : typeof decoded === "string" ? decoded : text;
  if (first === null) return <p className="dim">{bytesOf(message.base64 ?? "").length ? s.onlyBytes : s.noBytes}</p>;
  if (first === "") return <p className="dim">{s.noBytes}</p>;
  return (
    <>
      <BodyText text={first} label={s.decoded} />
      {isValue && text && (
        <details open={text.length < SHORT}>
          <summary>{s.asText}</summary>
          <BodyText text={text} label={s.asText} />
        </details>
      )}
    </>
  );
}

function BodyText({ text, label }: { text: string; label: string }): ReactNode {
  return (
    <>
      <pre className="body-text" role="region" aria-label={label} tabIndex={0}>
        <Foreign text={text.slice(0, LONGEST_SHOWN)} lines />
      </pre>
      {text.length > LONGEST_SHOWN && <p className="dim">{s.cut(count(LONGEST_SHOWN), count(text.length))}</p>}
    </>
  );
}
