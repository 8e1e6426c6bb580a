import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(tseslint.configs.strict, {
  files: ["src/**/*.{ts,tsx}"],
  plugins: { "react-hooks": hooks },
  rules: {
    "react-hooks/rules-of-hooks": "error",
    "react-hooks/exhaustive-deps": "error",
    "@typescript-eslint/no-confusing-void-expression": "off",
    "no-console": "error",
    "no-eval": "error",
    eqeqeq: "error",
    "no-restricted-properties": [
      "error",
      { property: "innerHTML" },
      { property: "outerHTML" },
      { property: "insertAdjacentHTML" },
    ],
    "no-restricted-syntax": [
      "error",
      {
        selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']",
        message: "Texts of others are text, never markup.",
      },
    ],
  },
});
