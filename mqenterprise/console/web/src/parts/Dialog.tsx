import { Button, Modal } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { strings } from "../strings";
import { Notice } from "./Notices";

/** A dialog. The focus goes into it and returns where it was. What was typed into it is not lost by a stray click. */
export function Dialog({
  title,
  onClose,
  children,
  wide = false,
  isChanged = false,
}: {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
  /** Whether something was typed that closing would lose: then a click beside it does nothing, and Escape asks. */
  isChanged?: boolean;
}): ReactNode {
  const [asking, setAsking] = useState(false);
  return (
    <Modal
      opened
      onClose={isChanged ? () => setAsking(true) : onClose}
      closeOnClickOutside={!isChanged}
      title={title}
      size={wide ? 820 : 560}
      lockScroll={false}
      centered
      closeButtonProps={{ "aria-label": strings.close }}
      transitionProps={{ duration: 0 }}
    >
      {asking && isChanged && (
        <div className="asks" role="alertdialog" aria-label={strings.leave.ask}>
          <Notice
            tone="warn"
            action={
              <span className="row">
                <Button size="compact-sm" variant="default" autoFocus onClick={() => setAsking(false)}>
                  {strings.leave.stay}
                </Button>
                <Button size="compact-sm" color="red" onClick={onClose}>
                  {strings.leave.go}
                </Button>
              </span>
            }
          >
            <p>{strings.leave.ask}</p>
          </Notice>
        </div>
      )}
      {children}
    </Modal>
  );
}
