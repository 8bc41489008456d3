// The review of a job: a sample of its outputs, decided one after the other with single keys.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { get, path } from "../api.js";
import { plural } from "../format.js";
import { useLoad, useReloadOnReturn } from "../load.js";
import { replaceQuery } from "../router.js";
import { Button, Choice } from "../ui/controls.js";
import { Empty, Loaded, notify } from "../ui/feedback.js";
import { Icon } from "../ui/icons.js";
import { Page } from "../ui/page.js";
import { useGroupName } from "./group_page.js";
import { useActions } from "./review_actions.js";
import { isDecided, unfinishedSeed, useDecisions } from "./review_decisions.js";
import { Finish, Sent, goOn } from "./review_finish.js";
import { History, Latest } from "./review_history.js";
import { Output, visibleRows } from "./review_output.js";
import { Summary, Toolbar, inOrder, summarize } from "./review_progress.js";
import { onSendingElsewhere, readSending } from "./review_sending.js";

const SIZES = [20, 60, 100, 300];
const whose = (session) => [session.organization, session.person];

/** The screen. The seed is in the address, so that a reload shows the same sample. */
export function Review({ group, job, query, session }) {
  const size = SIZES.includes(Number(query.size)) ? Number(query.size) : 100;
  const [seed] = useState(() => {
    const key = [...whose(session), group, job];
    const isOpen = (one) => one && !readSending([...key, one]).isFinished;
    return [query.seed, unfinishedSeed(key)].find(isOpen) || crypto.randomUUID().slice(0, 8);
  });
  useEffect(() => {
    if (query.seed !== seed) replaceQuery({ ...query, seed });
  }, [query.seed]);
  const sample = useLoad((signal) => get(path`console/api/sample/${group}`, { job_id: job, seed, size }, signal), [group, job, seed, size]);
  const history = useLoad((signal) => get(path`console/api/reviews/${group}`, { job_id: job }, signal), [group, job]);
  const leave = useRef(); // keeps an unfinished note, before another sample is shown
  const resize = (value) => {
    leave.current?.();
    replaceQuery({ ...query, seed, size: value === 100 ? undefined : value });
  };
  const options = SIZES.map((one) => [one, String(one)]);
  const sizes = html`<div class="review-size">Sample <${Choice} label="Size of the sample" value=${size} onValue=${resize} options=${options} /></div>
    <${Button} kind="quiet" onClick=${() => goOn(group, job)}>Next job <${Icon} name="arrow" /><//>`;
  return html`<${Page} wide title=${job} crumbs=${[["Inbox", ["inbox"]], [useGroupName(group), ["groups", group]]]} note=${html`<${Note} sample=${sample.data} history=${history} />`} actions=${sizes}>
    <${Loaded} state=${sample}>
      ${(data) =>
        data.sample.length
          ? html`<${Sample} key=${`${data.seed} ${data.cursor} ${data.sample.length}`} ...${{ group, job, session, history, leave, sample: data }} />`
          : html`<${Empty} icon="review" title="This job has no outputs">There is nothing to review until a scraper stores outputs.<//>`}
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

/** Returns the newest review, if somebody else made it after this screen was opened. */
function useNewer(history, sent) {
  const first = useRef();
  if (!history.data || sent.isApproved) return undefined;
  const [newest] = history.data.reviews;
  first.current ??= newest?.review_id ?? "";
  return newest?.review_id === first.current ? undefined : newest;
}

/** The decisions about one sample. */
function Work({ group, job, session, history, sample, leave, sendingKey, sent, onFailed }) {
  const outputs = useMemo(() => inOrder(sample), [sample]);
  const work = useDecisions(sendingKey, outputs);
  const [at, setAt] = useState(() => Math.max(0, outputs.findIndex((one) => !isDecided(work.decisions.get(one.output_id)))));
  const [edit, setEdit] = useState(null);
  const [status, setStatus] = useState(null);
  const [onlyChanged, setOnlyChanged] = useState(false);
  const output = outputs[at];
  const rowsOf = (one) => visibleRows(sample, one, onlyChanged);
  const rows = useMemo(() => rowsOf(output), [output, onlyChanged]);
  const place = useRef(at);
  place.current = at;
  const draft = useRef(null);
  const show = (next) => {
    if (next < 0 || next >= outputs.length) return;
    place.current = next;
    setEdit(null);
    setAt(next);
  };
  const main = useRef();
  useEffect(() => {
    // The next output begins at its top, also after somebody has scrolled in a long one.
    if (main.current.getBoundingClientRect().top < 0) main.current.scrollIntoView();
  }, [at]);
  const openFinish = (next) => {
    history.reload(); // others may have reviewed meanwhile
    setStatus(next);
  };
  const canSend = session.scopes.includes("reviews:write");
  const actions = useActions({ outputs, rowsOf, work, place, draft, show, setEdit, setStatus: openFinish, setOnlyChanged, canSend });
  leave.current = actions.keepDraft;
  useEffect(() => () => leave.current(), []);
  useEffect(() => {
    if (work.dropped) notify(`${plural(work.dropped, "decision")} about older values no longer count.`);
  }, []);
  const newer = useNewer(history, sent);
  const summary = summarize(sample, work.decisions);
  const finish = async (text) => {
    work.forget();
    await goOn(group, job, text);
    history.reload();
  };
  return html`<${Summary} ...${{ group, job, sample, summary, outputs, output, decisions: work.decisions, canSend, sent, onFinish: actions.finish, onShow: show }} />
    <div class="review-columns">
      <div class="review-main" ref=${main}>
        <${Output} ...${{ group, output, rows, onlyChanged, decision: work.decisions.get(output.output_id), edit, draft, actions, onCancel: () => setEdit(null) }} />
        ${!edit && html`<${Toolbar} ...${{ actions, at, outputs, work, onlyChanged }} />`}
      </div>
      <${History} state=${history} group=${group} outputs=${outputs} />
    </div>
    ${status && html`<${Finish} ...${{ status, group, job, sample, summary, newer, sent, sendingKey, onFailed }} onClose=${() => setStatus(null)} onSent=${finish} />`}`;
}
