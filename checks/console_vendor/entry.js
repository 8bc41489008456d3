// Everything that the console uses of Preact, its hooks and htm.
import { h, render, Fragment, createContext } from "preact";
import htm from "htm";

export { h, render, Fragment, createContext };
export {
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "preact/hooks";
export const html = htm.bind(h);
