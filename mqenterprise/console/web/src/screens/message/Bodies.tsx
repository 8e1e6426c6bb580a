import { Button, TextInput } from "@mantine/core";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import type { Message } from "../../api/types";
import { base64Of, bytesOf, save } from "../../parts/bytes";
import { Dump } from "../../parts/Dump";
import { classWord, count, exactSize, size } from "../../parts/format";
import { Foreign, Moment, None } from "../../parts/Texts";
import { strings } from "../../strings";

const s = strings.message;
const LONGEST_SHOWN = 200_000;
const SHORT = 4000;

function Text({ text }: { text: string | null }): ReactNode {
  return text ? <Foreign text={text} /> : <None />;
}

export function Facts({ message }: { message: Message }): ReactNode {
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

export function Bodies({ message }: { message: Message }): ReactNode {
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

export function Decoded({ message }: { message: Message }): ReactNode {
  const { decoded, text } = message;
  // XML is shown as it was sent: as a value it would lose its order, its attributes and its form.
  const isXml = message.format === "xml" && text !== null;
  const isValue = !isXml && decoded !== null && decoded !== undefined && typeof decoded !== "string";
  const first = isValue ? JSON.stringify(decoded, null, 2) : typeof decoded === "string" && !isXml ? decoded : text;
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

/** The text of a body: to look through, to find a word in, to copy. */
function BodyText({ text, label }: { text: string; label: string }): ReactNode {
  const [wanted, setWanted] = useState("");
  const [copied, setCopied] = useState<boolean | null>(null);
  const shown = text.slice(0, LONGEST_SHOWN);
  const parts = useMemo(() => found(shown, wanted), [shown, wanted]);
  const hits = (parts.length - 1) / 2;
  const marked = useRef<HTMLElement>(null);
  useEffect(() => marked.current?.scrollIntoView({ block: "nearest" }), [wanted]);
  return (
    <>
      <div className="row body-tools">
        <TextInput
          size="xs"
          aria-label={s.findIn}
          placeholder={s.findIn}
          value={wanted}
          onChange={(event) => setWanted(event.currentTarget.value)}
        />
        {wanted && <span aria-live="polite">{s.hits(hits)}</span>}
        <Button
          size="compact-sm"
          variant="default"
          ml="auto"
          onClick={() =>
            void navigator.clipboard.writeText(text).then(
              () => setCopied(true),
              () => setCopied(false),
            )
          }
        >
          {copied === null ? s.copy : copied ? s.copied : s.notCopied}
        </Button>
      </div>
      <pre className="body-text" role="region" aria-label={label} tabIndex={0}>
        {parts.map((part, index) =>
          index % 2 ? (
            <mark key={index} {...(index === 1 && { ref: marked })}>
              <Foreign text={part} lines />
            </mark>
          ) : (
            <Foreign key={index} text={part} lines />
          ),
        )}
      </pre>
      {text.length > LONGEST_SHOWN && <p className="dim">{s.cut(count(LONGEST_SHOWN), count(text.length))}</p>}
    </>
  );
}

const MOST_HITS = 500;

/** A text cut at what is looked for: every second part is one of its places. */
function found(text: string, wanted: string): readonly string[] {
  if (!wanted) return [text];
  const [low, word] = [text.toLowerCase(), wanted.toLowerCase()];
  const parts: string[] = [];
  let from = 0;
  // Folding may change lengths, in few scripts: then nothing is marked.
  if (low.length !== text.length) return [text];
  for (let at = low.indexOf(word); at >= 0 && parts.length < 2 * MOST_HITS; at = low.indexOf(word, from)) {
    parts.push(text.slice(from, at), text.slice(at, at + word.length));
    from = at + word.length;
  }
  return [...parts, text.slice(from)];
}
