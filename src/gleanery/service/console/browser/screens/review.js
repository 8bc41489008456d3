// The review of a job: a sample of its outputs, decided one after the other with single keys.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { BACKGROUND, get, path, post } from "../api.js";
import { plural } from "../format.js";
import { useAction, useLoad, useReloadOnReturn } from "../load.js";
import { go, replaceQuery } from "../router.js";
import { Button, Choice } from "../ui/controls.js";
import { Empty, Loaded, notify } from "../ui/feedback.js";
import { Icon } from "../ui/icons.js";
import { Page } from "../ui/page.js";
import { useGroupName } from "./group_page.js";
import { useActions } from "./review_actions.js";
import { carryOver, isDecided, readAbout, unfinishedSeed, useDecisions } from "./review_decisions.js";
import { Finish, Sent, goOn } from "./review_finish.js";
import { History, Latest } from "./review_history.js";
import { Output, visibleRows } from "./review_output.js";
import { Summary, Toolbar, inOrder, summarize } from "./review_progress.js";
import { onSendingElsewhere, readSending } from "./review_sending.js";

const SIZES = [20, 60, 100, 300];
const PAUSE = 15_000; // milliseconds until it looks again for later values
const whose = (session) => [session.organization, session.person];
const newSeed = () => crypto.randomUUID().slice(0, 8);

/** The screen. Seed and position (as_of) are in the address, so that a reload shows the same sample and goes on with its review. */
export function Review({ group, job, query, session }) {
  const size = SIZES.includes(Number(query.size)) ? Number(query.size) : 100;
  const key = [...whose(session), group, job];
  const seed = useMemo(() => {
    const isOpen = (one) => one && !readSending([...key, one]).isFinished;
    return [query.seed, unfinishedSeed(key)].find(isOpen) ?? newSeed();
  }, [query.seed]);
  const abouts = useRef({}); // by seed: what is stored with the first decision
  const load = async (signal) => {
    const before = abouts.current[seed] ?? readAbout([...key, seed]);
    const outputs = before.samples?.[size];
    const as_of = before.asOf ?? (query.seed === seed ? query.as_of : undefined);
    const route = path`console/api/sample/${group}`;
    const data = outputs ? await post(route, { job_id: job, as_of, outputs }, { signal }) : await get(route, { job_id: job, seed, size, as_of }, signal);
    const chosen = outputs ?? Object.fromEntries(data.sample.map((one) => [one.output_id, one.reason]));
    const about = { outputs: data.outputs, ...before, asOf: data.cursor, samples: { ...before.samples, [size]: chosen } };
    abouts.current[seed] = about;
    return { ...data, seed, size, about, now: data.outputs, outputs: about.outputs, chosen: Object.keys(chosen).length };
  };
  const loaded = useLoad(load, [group, job, seed, size]);
  const sample = loaded.data?.seed === seed ? loaded : { ...loaded, data: undefined }; // no key may decide in the sample before
  const as_of = sample.data?.cursor;
  // In the same step as the sample is shown: a key or Back after it must not meet another address.
  useLayoutEffect(() => {
    if (as_of && (query.seed !== seed || query.as_of !== String(as_of))) replaceQuery({ ...query, seed, as_of });
  }, [as_of, query.seed, query.as_of]);
  const history = useLoad((signal) => get(path`console/api/reviews/${group}`, { job_id: job }, signal), [group, job]);
  const leave = useRef(); // keeps an unfinished note, before another sample is shown
  const resize = (value) => {
    leave.current?.();
    replaceQuery({ ...query, seed, size: value === 100 ? undefined : value });
  };
  const onRenew = () => {
    leave.current?.();
    const next = newSeed();
    carryOver([...key, seed], [...key, next]);
    go(["groups", group, "review", job], { size: query.size, seed: next });
  };
  const renew = html`<p class="actions"><${Button} onClick=${onRenew}>New sample<//></p>`; // the outputs or the position are gone
  const options = SIZES.map((one) => [one, String(one)]);
  const sizes = html`<div class="review-size">Sample <${Choice} label="Size of the sample" value=${size} onValue=${resize} options=${options} /></div>
    <${Button} kind="quiet" onClick=${() => goOn(group, job)}>Next job <${Icon} name="arrow" /><//>`;
  return html`<${Page} wide title=${job} crumbs=${[["Inbox", ["inbox"]], [useGroupName(group), ["groups", group]]]} note=${html`<${Note} sample=${sample.data} history=${history} />`} actions=${sizes}>
    ${[410, 422].includes(sample.error?.status) && renew}
    <${Loaded} state=${sample}>
      ${(data) =>
        data.sample.length
          ? html`<${Sample} key=${`${data.seed} ${data.size}`} ...${{ group, job, session, history, leave, onRenew, onReload: sample.reload, sample: data }} />`
          : html`<${Empty} icon="review" title="There is no output to review">${renew}<//>`}
    <//>
  <//>`;
}

function Note({ sample, history }) {
  if (!sample) return "Review of a job";
  const newest = history.data?.reviews.find((one) => one.is_of_job);
  return html`${plural(sample.outputs, "output")} · ${newest ? html`<${Latest} review=${newest} />` : "never reviewed as a whole"}`;
}

/** A sample, until its review is sent. */
function Sample(props) {
  const { group, job, session, history, sample } = props;
  const key = [...whose(session), group, job, sample.seed];
  const [sent, setSent] = useState(() => readSending(key));
  const update = () => {
    setSent(readSending(key));
    history.reload();
  };
  useEffect(() => onSendingElsewhere(key, update), []);
  useReloadOnReturn(history.reload);
  return sent.isFinished ? html`<${Sent} ...${{ history, group, job }} />` : html`<${Work} ...${{ ...props, sendingKey: key, sent, onFailed: update }} />`;
}

/** Returns the newest review, if somebody else made it after this review was begun. about.known: the newest one then. */
function useNewer(history, sent, about) {
  if (!history.data || sent.isApproved) return undefined;
  const [newest] = history.data.reviews;
  about.known ??= newest?.review_id ?? "";
  return newest?.review_id === about.known ? undefined : newest;
}

/** Returns what was stored since the sample was read: { outputs, later, deleted, error }, and check(), which looks at once. */
function useLater(group, job, sample) {
  const [state, setState] = useState({ later: {}, deleted: [] });
  const check = useRef(() => {}); // a key can come before the first effect
  useReloadOnReturn(() => check.current());
  useEffect(() => {
    const body = { job_id: job, as_of: sample.cursor, output_ids: sample.sample.map((one) => one.output_id) };
    let isOver, timer;
    check.current = async () => {
      clearTimeout(timer);
      timer = setTimeout(check.current, PAUSE);
      if (document.hidden) return;
      const found = await post(path`console/api/sample/${group}/later`, body, { headers: BACKGROUND }).catch((error) => ({ error }));
      if (!isOver) setState((before) => ({ ...before, error: undefined, ...found }));
    };
    check.current();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [sample]);
  return { ...state, check: () => check.current() };
}

/** The decisions about one sample. */
function Work({ group, job, session, history, sample, leave, sendingKey, sent, onFailed, onRenew, onReload }) {
  const outputs = useMemo(() => inOrder(sample), [sample]);
  const work = useDecisions(sendingKey, sample, sample.about);
  const later = useLater(group, job, sample);
  const [id, setId] = useState(() => outputs.find((one) => !isDecided(work.decisions.get(one.output_id)))?.output_id);
  const at = Math.max(0, outputs.findIndex((one) => one.output_id === id));
  const [edit, setEdit] = useState(null);
  const [status, setStatus] = useState(null);
  const [onlyChanged, setOnlyChanged] = useState(false);
  const output = outputs[at];
  const [extras, setExtras] = useState(new Map()); // fields that the sample has left out, by output
  const extra = extras.get(output);
  const rowsOf = (one) => visibleRows(sample, one, onlyChanged, extras.get(one)?.rows);
  const rows = useMemo(() => rowsOf(output), [output, onlyChanged, extras]);
  const moreFields = useAction(async () => {
    const query = { job_id: job, stored: output.stored, as_of: sample.cursor, offset: extra?.next };
    const page = await get(path`console/api/outputs/${group}/${output.output_id}/fields`, query);
    setExtras((before) => new Map(before).set(output, { rows: [...(extra?.rows ?? []), ...page.rows], next: page.next_offset }));
  });
  const place = useRef(at);
  place.current = at;
  const draft = useRef(null);
  const show = (next) => {
    if (next < 0 || next >= outputs.length) return;
    place.current = next;
    setEdit(null);
    setId(outputs[next].output_id);
  };
  const main = useRef();
  useEffect(() => {
    // The next output begins at its top, also after somebody has scrolled in a long one.
    if (main.current.getBoundingClientRect().top < 0) main.current.scrollIntoView();
  }, [at]);
  const openFinish = (next) => {
    history.reload(); // others may have reviewed since
    later.check();
    setStatus(next);
  };
  const canSend = session.scopes.includes("reviews:write");
  const actions = useActions({ outputs, rowsOf, work, place, draft, show, setEdit, setStatus: openFinish, setOnlyChanged, canSend });
  leave.current = actions.keepDraft;
  useEffect(() => () => leave.current(), []);
  useEffect(() => {
    if (work.dropped) notify(`${plural(work.dropped, "decision")} not taken over: changed, or not in this sample.`);
  }, []);
  const newer = useNewer(history, sent, sample.about);
  const summary = summarize(sample, work.decisions);
  const finish = async (text) => {
    work.forget();
    await goOn(group, job, text);
    history.reload();
  };
  return html`<${Summary} ...${{ group, job, sample, summary, later, outputs, output, decisions: work.decisions, canSend, sent, onFinish: actions.finish, onShow: show, onRenew }} />
    <div class="review-columns">
      <div class="review-main" ref=${main}>
        <${Output} ...${{ group, sample, output, later, rows, extra, moreFields, onlyChanged, decision: work.decisions.get(output.output_id), edit, draft, actions, onCancel: () => setEdit(null), onReload }} />
        ${!edit && html`<${Toolbar} ...${{ actions, at, outputs, work, onlyChanged }} />`}
      </div>
      <${History} state=${history} group=${group} outputs=${outputs} />
    </div>
    ${status && html`<${Finish} ...${{ status, group, job, sample, summary, newer, sent, sendingKey, onFailed }} onClose=${() => setStatus(null)} onSent=${finish} />`}`;
}
