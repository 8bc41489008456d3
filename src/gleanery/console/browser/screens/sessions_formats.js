// The formats of session state, as people choose them.

/** name: { title, file, needsUrl } */
export const FORMATS = {
  playwright: { title: "Playwright storage state", file: "storage_state.json" },
  netscape: { title: "cookies.txt (curl, wget, yt-dlp)", file: "cookies.txt" },
  extension: { title: "Browser extension JSON (Cookie-Editor)", file: "cookies.json" },
  puppeteer: { title: "Puppeteer", file: "cookies.puppeteer.json" },
  selenium: { title: "Selenium", file: "cookies.selenium.json" },
  scrapy: { title: "Scrapy", file: "cookies.scrapy.json" },
  cdp: { title: "Chrome DevTools Protocol", file: "cookies.cdp.json" },
  har: { title: "HAR", file: "cookies.har" },
  curl: { title: "curl command", file: "curl.sh", needsUrl: true },
  cookie: { title: "Cookie header", file: "cookie.txt", needsUrl: true },
  "set-cookie": { title: "Set-Cookie headers", file: "set-cookie.txt", needsUrl: true },
};
