package app

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tidegate/proxy/queues"
)

// partitionsShown bounds the partitions below a queue, the worst first.
const partitionsShown = 4

// queueTable draws a view for a terminal or a file.
type queueTable struct {
	from  string
	all   bool // every partition
	color bool
	stale bool // what was judged is not known any more: it is drawn as "?"
}

// cell is one field; paint is an ANSI colour or empty.
type cell struct {
	text, paint string
	left        bool
}

const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	dim    = "\x1b[2m"
	plain  = "\x1b[0m"
)

// draw gives the whole table: a head line, the queues with the worst first, and
// what waits in sum for each account.
func (t queueTable) draw(v queues.View) string {
	var b strings.Builder
	b.WriteString(t.head(v))
	rows := [][]cell{titles("QUEUE", "ACCOUNT", "PARTITION", "DEPTH", "AGE", "IN/S", "OUT/S", "DRAIN", "STATUS", "VERDICT", "FOR", "CONSUMER")}
	slices.SortStableFunc(v.Queues, func(x, y queues.QueueView) int {
		return cmp.Or(cmp.Compare(y.Verdict.Rank(), x.Verdict.Rank()), cmp.Compare(y.Status.Rank(), x.Status.Rank()),
			cmp.Compare(y.Depth, x.Depth), cmp.Compare(age(y.Age), age(x.Age)))
	})
	t.stale = v.Stale
	for _, q := range v.Queues {
		rows = append(rows, t.queue(q, v.At)...)
	}
	t.write(&b, rows)
	if rows := t.sums(v.Queues); len(rows) > 1 {
		b.WriteByte('\n')
		t.write(&b, rows)
	}
	return b.String()
}

func (t queueTable) head(v queues.View) string {
	out := fmt.Sprintf("%s  queues of %s", v.At.Local().Format(time.TimeOnly), t.from)
	switch {
	case v.SampledAt.IsZero():
		out += ", not measured yet"
	default:
		out += ", measured " + span(v.At.Sub(v.SampledAt)) + " ago"
	}
	if v.Spool.Records > 0 {
		out += fmt.Sprintf("; on this node's disk %d records, the oldest %s", v.Spool.Records, spanOf(v.Spool.Oldest))
	}
	if v.DepthMode == queues.Paper {
		out += "; depth_mode paper"
	}
	out += "\n"
	if v.Stale || v.Error != "" {
		what := "the queues cannot be measured now"
		if v.Stale {
			what = "STALE: this is what was last known"
		}
		out += t.paint(red, strings.TrimSuffix(what+": "+forTerminal(v.Error), ": ")) + "\n"
	}
	return out + "\n"
}

func (t queueTable) queue(q queues.QueueView, now time.Time) [][]cell {
	state, verdict, lost := t.judged(status(q.Status)), t.judged(verdict(q.Verdict)), lostOf(q)
	if lost > 0 && q.Verdict == queues.Fine {
		verdict = lostCell(lost)
	}
	switch {
	case q.Error != "":
		state = cell{text: "not measured: " + forTerminal(q.Error), paint: red, left: true}
	case q.Missing:
		state = cell{text: "no topic: run 'tidegate topics'", paint: yellow, left: true}
	}
	total := []cell{name(q.Queue), name(q.Account), {text: "all"}, number(q.Depth), t.judged(text(spanOf(q.Age))),
		rate(q.In), rate(q.Out), t.judged(text(spanOf(q.Drain))), state, verdict, since(q.Verdict, q.Since, now), notes(q, lost)}
	rows := [][]cell{total}
	ps := slices.Clone(q.Partitions)
	slices.SortStableFunc(ps, func(x, y queues.PartitionView) int {
		return cmp.Or(cmp.Compare(y.Verdict.Rank(), x.Verdict.Rank()), cmp.Compare(y.Status.Rank(), x.Status.Rank()), cmp.Compare(y.Depth, x.Depth))
	})
	shown := 0
	for _, p := range ps {
		if !t.all && (shown == partitionsShown || p.Verdict == queues.Fine && p.Status.Rank() <= queues.OK.Rank() && p.Skipped == 0) {
			continue
		}
		shown++
		rows = append(rows, []cell{{}, {}, {text: strconv.Itoa(int(p.Partition))}, number(p.Depth), t.judged(text(spanOf(p.Age))),
			rate(p.In), rate(p.Out), t.judged(text(spanOf(p.Drain))), t.judged(status(p.Status)), t.verdictOf(p), since(p.Verdict, &p.Since, now), consumer(p)})
	}
	return rows
}

// sums adds up what waits per account. What the receipts room has still to note
// lies in the same topics as what waits for the sender, and is left out.
func (t queueTable) sums(all []queues.QueueView) [][]cell {
	type sum struct {
		depth   int64
		age     float64
		verdict queues.Verdict
	}
	var accounts []string
	by := map[string]*sum{}
	for _, q := range all {
		if q.Account == "" || strings.HasPrefix(q.Queue, "queued.") {
			continue
		}
		s := by[q.Account]
		if s == nil {
			s = &sum{verdict: queues.Fine}
			by[q.Account] = s
			accounts = append(accounts, q.Account)
		}
		s.depth += q.Depth
		s.age = max(s.age, age(q.Age))
		if q.Verdict.Rank() > s.verdict.Rank() {
			s.verdict = q.Verdict
		}
	}
	slices.SortFunc(accounts, func(x, y string) int {
		return cmp.Or(cmp.Compare(by[y].verdict.Rank(), by[x].verdict.Rank()), cmp.Compare(by[y].depth, by[x].depth), cmp.Compare(x, y))
	})
	rows := [][]cell{titles("ACCOUNT", "", "", "DEPTH", "OLDEST", "", "", "", "", "VERDICT")}
	for _, a := range accounts {
		s := by[a]
		rows = append(rows, []cell{name(a), {}, {}, number(s.depth), t.judged(text(spanOf(&s.age))), {}, {}, {}, {}, t.judged(verdict(s.verdict))})
	}
	return rows
}

func titles(names ...string) []cell {
	out := make([]cell, len(names))
	for i, n := range names {
		out[i] = cell{text: n, paint: dim, left: n == "QUEUE" || n == "ACCOUNT" || n == "STATUS" || n == "VERDICT" || n == "CONSUMER"}
	}
	return out
}

func name(s string) cell {
	if s == "" {
		s = "(all)"
	}
	return cell{text: forTerminal(s), left: true}
}

func text(s string) cell     { return cell{text: s} }
func number(n int64) cell    { return cell{text: strconv.FormatInt(n, 10)} }
func rate(perS float64) cell { return cell{text: strconv.FormatFloat(perS, 'f', 1, 64)} }

func status(s queues.Status) cell {
	c := cell{text: forTerminal(string(s)), left: true}
	switch s {
	case queues.Stall, queues.Stop:
		c.paint = red
	case queues.Slow, queues.Rewind:
		c.paint = yellow
	case queues.OK, queues.Unknown:
	}
	return c
}

func verdict(v queues.Verdict) cell {
	c := cell{text: forTerminal(string(v)), left: true}
	switch v {
	case queues.Faulty, queues.Overload:
		c.paint = red
	case queues.Laggard, queues.Deep:
		c.paint = yellow
	case queues.Fine:
	}
	return c
}

// judged is the cell, or "?" in a stale view: an "ok" of minutes ago is none.
func (t queueTable) judged(c cell) cell {
	if t.stale {
		return cell{text: "?", left: c.left}
	}
	return c
}

// verdictOf names what retention took before it was read: no verdict is worse.
func (t queueTable) verdictOf(p queues.PartitionView) cell {
	if p.Skipped > 0 {
		return lostCell(p.Skipped)
	}
	return t.judged(verdict(p.Verdict))
}

func lostCell(n int64) cell {
	return cell{text: fmt.Sprintf("%d LOST", n), paint: red, left: true}
}

func lostOf(q queues.QueueView) (n int64) {
	for _, p := range q.Partitions {
		n += p.Skipped
	}
	return n
}

// notes say what the columns of a whole queue have no room for.
func notes(q queues.QueueView, lost int64) cell {
	c := cell{left: true}
	if q.Spooled > 0 {
		c.text = fmt.Sprintf("%d of them on this node's disk", q.Spooled)
	}
	if lost > 0 {
		c.paint, c.text = red, strings.TrimPrefix(fmt.Sprintf("%s; lost %d", c.text, lost), "; ")
	}
	return c
}

func since(v queues.Verdict, at *time.Time, now time.Time) cell {
	if at == nil || v == queues.Fine {
		return cell{}
	}
	return text(span(now.Sub(*at)))
}

func consumer(p queues.PartitionView) cell {
	switch {
	case p.Unseen:
		return cell{text: "not measured: no leader?", paint: red, left: true}
	case p.Consumer == nil:
		return cell{}
	case *p.Consumer == "":
		return cell{text: "nobody", paint: yellow, left: true}
	}
	return cell{text: forTerminal(*p.Consumer), left: true}
}

func age(s *float64) float64 {
	if s == nil {
		return 0
	}
	return *s
}

func spanOf(s *float64) string {
	if s == nil {
		return "?"
	}
	return span(time.Duration(*s * float64(time.Second)))
}

// span is a duration for eyes: 0.4s, 12s, 1m20s, 2h05m, 3d4h.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d == 0:
		return "0s"
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 59500*time.Millisecond:
		return fmt.Sprintf("%.0fs", d.Seconds())
	}
	d = d.Round(time.Second)
	h, m, s := int(d/time.Hour), int(d/time.Minute)%60, int(d/time.Second)%60
	switch {
	case h == 0:
		return fmt.Sprintf("%dm%02ds", m, s)
	case h < 48:
		return fmt.Sprintf("%dh%02dm", h, m)
	}
	return fmt.Sprintf("%dd%dh", h/24, h%24)
}

// write lines up the columns. Colours take no width, which is why this is no
// tabwriter.
func (t queueTable) write(b *strings.Builder, rows [][]cell) {
	var width []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, r := range rows {
		line := ""
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c.text))
			field := t.paint(c.paint, c.text)
			if c.left {
				field += pad
			} else {
				field = pad + field
			}
			if i > 0 && width[i] > 0 {
				line += "  "
			}
			line += field
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

func (t queueTable) paint(color, s string) string {
	if !t.color || color == "" || s == "" {
		return s
	}
	return color + s + plain
}
