// Runs the client of http-cache-tests, unchanged, with a fetch that asks one of our contestants.
//
// node cache_runner.mjs PACKAGE BRIDGE ORIGIN role|beyond
//
// `role` runs what the package runs for a browser, whose cache is private as ours is. `beyond`
// runs what it spares a browser, most of it because a page cannot see or send such things.
import { pathToFileURL } from 'node:url'

const [folder, bridge, origin, part] = process.argv.slice(2)
const load = name => import(pathToFileURL(`${folder}/${name}`))
const { runTests, getResults } = await load('client/runner.mjs')
const { determineTestResult } = await load('lib/display.mjs')
const suites = (await load('tests/index.mjs')).default
suites.push((await load('tests/surrogate-control.mjs')).default)

const cases = suites.flatMap(suite => suite.tests.map(test => ({
  id: test.id,
  suite: suite.id,
  name: test.name,
  kind: test.kind || 'required',
  part: test.browser_skip === true ? 'beyond' : 'role'
})))

if (part === 'beyond') {
  suites.forEach(suite => suite.tests.forEach(test => {
    // What others depend on has to run, too.
    test.browser_skip = false
  }))
}

async function ask (url, init = {}) {
  const headers = [...(init.headers || [])]
  // What the fetch standard does with this mode, which only browsers have.
  if (init.cache === 'no-cache') headers.push(['Cache-Control', 'max-age=0'])
  const question = { url, method: init.method || 'GET', headers, body: init.body }
  const answer = await (await fetch(bridge, { method: 'POST', body: JSON.stringify(question) })).json()
  if (answer.error) throw new TypeError(answer.error)
  return {
    status: answer.status,
    statusText: '',
    headers: new Headers(answer.headers),
    text: async () => answer.body
  }
}

await runTests(suites, ask, true, origin)
const results = getResults()
const symbols = {
  '✅': 'pass', '⛔️': 'fail', '⚠️': 'not optimal', Y: 'yes', N: 'no', '🔹': 'setup',
  '⁉️': 'harness', '⚪️': 'dependency', '↻': 'retried', '-': 'untested'
}
for (const one of cases) {
  one.verdict = symbols[determineTestResult(suites, one.id, results)[2]]
  one.message = Array.isArray(results[one.id]) ? results[one.id].join(': ') : ''
}
console.log(JSON.stringify({ cases: cases.filter(one => one.part === part) }))
