import { Modal } from "@mantine/core";
import type { ReactNode } from "react";
import { strings } from "../strings";

/** A dialog. The focus goes into it and returns where it was. */
export function Dialog({
  title,
  onClose,
  children,
  wide = false,
}: {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
}): ReactNode {
  return (
    <Modal
      opened
      onClose={onClose}
      title={title}
      size={wide ? 820 : 560}
      lockScroll={false}
      centered
      closeButtonProps={{ "aria-label": strings.close }}
      transitionProps={{ duration: 0 }}
    >
      {children}
    </Modal>
  );
}
