import { Button, PasswordInput, SegmentedControl, TextInput } from "@mantine/core";
import { Activity, type FormEvent, type ReactNode, useState } from "react";
import { address } from "../api/client";
import { SessionContext, useCurrentSession, useSignIn } from "../api/session";
import { Failure, Notice, Waiting } from "../parts/Notices";
import { Foreign } from "../parts/Texts";
import { strings } from "../strings";

/**
 * Lets a signed-in person in; shows everybody else how to sign in. The address stays, so deep links work after it. When
 * a session ends, its screen is hidden and kept, with what was typed there, until its person comes back, or another.
 */
export function Entrance({ children }: { children: ReactNode }): ReactNode {
  const session = useCurrentSession();
  const here = session.data?.signed_in ? session.data : null;
  const [last, setLast] = useState(here);
  if (here && here !== last) setLast(here);
  const kept = here ?? last;
  return (
    <>
      {kept && (
        <SessionContext.Provider value={kept}>
          <Activity key={kept.name} mode={here ? "visible" : "hidden"}>
            {children}
          </Activity>
        </SessionContext.Provider>
      )}
      {!here && <Outside session={session} ended={kept !== null} />}
    </>
  );
}

function Outside({
  session,
  ended,
}: {
  session: ReturnType<typeof useCurrentSession>;
  /** Whether somebody was signed in on this page. */
  ended: boolean;
}): ReactNode {
  return (
    <main className="sign-in">
      <div className="panel">
        <p className="row">
          <img src="./icon.svg" alt="" width={34} height={34} />
          <strong>{strings.product}</strong>
        </p>
        {session.data ? (
          <SignIn methods={session.data.methods} reason={session.data.reason} ended={ended} />
        ) : session.error ? (
          <Failure error={session.error} retry={() => void session.refetch()} />
        ) : (
          <Waiting />
        )}
      </div>
    </main>
  );
}

/** Why the way over the provider ended without a session: the server adds it to the address. */
function refusalOfProvider(): string {
  return new URLSearchParams(location.hash.split("?")[1] ?? "").get("sign_in_error") ?? "";
}

function SignIn({ methods, reason, ended }: { methods: readonly string[]; reason: string; ended: boolean }): ReactNode {
  const forms = methods.filter((method) => method !== "oidc");
  const [method, setMethod] = useState(forms[0] ?? "token");
  const [name, setName] = useState("");
  const [secret, setSecret] = useState("");
  const signIn = useSignIn();
  const [refusal] = useState(refusalOfProvider);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    signIn.mutate(method === "ldap" ? { method, user: name, password: secret } : { method, token: secret });
  };
  return (
    <>
      <h1>{strings.signIn.title}</h1>
      {(ended || reason) && (
        <div className="gap-above">
          <Notice tone="warn">
            <p role="status">
              {strings.signIn.ended} <Foreign text={reason} most={500} /> {ended && strings.signIn.kept}
            </p>
          </Notice>
        </div>
      )}
      {forms.length > 1 && (
        <SegmentedControl
          fullWidth
          mt="md"
          aria-label={strings.signIn.way}
          value={method}
          onChange={(value) => {
            setMethod(value);
            setSecret("");
            signIn.reset();
          }}
          data={forms.map((one) => ({ value: one, label: strings.signIn.methods[one as "token" | "ldap"] ?? one }))}
        />
      )}
      {forms.length > 0 && (
        <form onSubmit={submit}>
          {method === "ldap" && (
            <TextInput
              mt="md"
              label={strings.signIn.name}
              autoComplete="username"
              value={name}
              onChange={(event) => setName(event.currentTarget.value)}
              required
            />
          )}
          <PasswordInput
            mt="md"
            label={method === "ldap" ? strings.signIn.password : strings.signIn.token}
            description={method === "ldap" ? undefined : strings.signIn.tokenHelp}
            autoComplete="current-password"
            value={secret}
            onChange={(event) => setSecret(event.currentTarget.value)}
            visibilityToggleButtonProps={{ "aria-label": strings.signIn.show }}
            required
          />
          <Button type="submit" fullWidth mt="lg" loading={signIn.isPending}>
            {strings.signIn.enter}
          </Button>
        </form>
      )}
      {methods.includes("oidc") && (
        // In another tab, for what was typed here would go with the page.
        <Button
          component="a"
          href={address("oidc/start")}
          target={ended ? "_blank" : undefined}
          variant="default"
          fullWidth
          mt="sm"
        >
          {ended ? strings.signIn.oidcElsewhere : strings.signIn.oidc}
        </Button>
      )}
      {refusal && !signIn.error && !signIn.isPending && (
        <div className="gap-above">
          <Notice tone="bad">
            <p>
              <Foreign text={refusal} most={500} />
            </p>
          </Notice>
        </div>
      )}
      {signIn.error && (
        <div className="gap-above">
          <Failure error={signIn.error} />
        </div>
      )}
    </>
  );
}
