// Compiles only if the generated types have exactly the required and optional members.
import type { components, operations } from "./schema";

type Cookie = components["schemas"]["CookieIn"];
type Body = operations["set_cookies"]["requestBody"]["content"]["application/json"];

const minimal: Cookie = { domain: "shop.example.com", name: "session", value: "3f9a1c" };
const complete: Cookie = {
  ...minimal,
  expires: "2030-01-01T00:00:00Z",
  http_only: true,
  path: "/",
  sameSite: "Lax",
  secure: true,
};
export const body: Body = [minimal, complete, { ...minimal, expires: -1, httpOnly: null }];

// @ts-expect-error A cookie needs a value.
export const incomplete: Cookie = { domain: "shop.example.com", name: "session" };
// @ts-expect-error A domain is a string.
export const wrong: Cookie = { domain: 7, name: "session", value: "3f9a1c" };

type Entry = components["schemas"]["LocalStorageIn"];
const entry: Entry = { domain: "shop.example.com", key: "currency", value: "EUR" };
export const dated: Entry = { ...entry, expires: "2030-01-01T00:00:00Z" };

type File = components["schemas"]["FileIn"];
const file: File = { field: "leaflet", id: "3f2a9c1e5b7d4860a1c3e5f708192a3b" };
export const elsewhere: File = { ...file, id: null, file_url: "https://files.example.com/1" };

type Page = operations["get_outputs"]["responses"]["200"]["content"]["application/json"];
export const next = (page: Page): string | null => page.metadata.next_url;
