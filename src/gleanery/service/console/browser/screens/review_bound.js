// The share of bad outputs in a job: an upper bound from random outputs, or the exact share.

import { plural } from "../format.js";

const CONFIDENCE = 0.95;
const ENOUGH = 59;

/** Returns the probability of at most `bad` bad outputs among `count`, if a share of them is bad. */
function atMost(bad, count, share) {
  let logarithm = count * Math.log1p(-share);
  let sum = Math.exp(logarithm);
  for (let at = 1; at <= bad; at++) {
    logarithm += Math.log((count - at + 1) / at) + Math.log(share) - Math.log1p(-share);
    sum += Math.exp(logarithm);
  }
  return sum;
}

/** Returns the upper bound of Clopper and Pearson for the share of bad outputs, one-sided 95 %. */
export function upperBound(bad, count) {
  if (count === 0 || bad >= count) return 1;
  let [low, high] = [bad / count, 1];
  for (let round = 0; round < 60; round++) {
    const middle = (low + high) / 2;
    if (atMost(bad, count, middle) > 1 - CONFIDENCE) low = middle;
    else high = middle;
  }
  return high;
}

/** Returns a warning if too little was seen for an approval. The arguments are those of describeBound. */
export function warnFew(decided, isWhole, total) {
  if (isWhole) return decided.length < total && `Only ${decided.length} of ${total} outputs are decided.`;
  const random = decided.filter((one) => one.isRandom).length;
  return random < ENOUGH && `Only ${plural(random, "random output is", "random outputs are")} decided. It takes ${ENOUGH} without an error to show that at most 5 % of the job is bad.`;
}

/** Returns a share in percent with one digit, never less than it is. */
export function roundedUp(share) {
  return Math.min(100, Math.ceil(share * 1000 - 1e-6) / 10);
}

/**
 * Says what is known about the job. decided: [{ isRandom, isBad }]; isWhole: the sample is the job.
 * Only random outputs represent the job: the others were chosen because they are unusual.
 */
export function describeBound(decided, isWhole, total) {
  if (isWhole) {
    const bad = decided.filter((one) => one.isBad).length;
    if (decided.length < total) return `${bad} bad of ${decided.length} seen. The sample is the whole job.`;
    return `${bad} bad of ${total} outputs, the whole job: exactly ${Number(((bad / total) * 100).toFixed(1))} %`;
  }
  const random = decided.filter((one) => one.isRandom);
  const bad = random.filter((one) => one.isBad).length;
  if (!random.length) return "No random output is decided: nothing is known about the whole job.";
  return `${bad} bad of ${plural(random.length, "random output")}: at most ${roundedUp(upperBound(bad, random.length))} % of the job is bad (95 % confidence)`;
}
