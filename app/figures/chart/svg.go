package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The size of the picture, and the place of the plot in it, in pixels.
const (
	width      = 760
	plotHeight = 300
	left       = 70
	right      = 24
	footLine   = 15
	noteLine   = 16
	legendLine = 19
	letter     = 6.7 // width of a letter, about
)

// style holds for both schemes; series 0 to 3 are told apart by people who see
// no red or green as well.
const style = `
.b{fill:#ffffff}.t{fill:#1f2328}.m{fill:#59636e}.g{stroke:#d8dee4}.a{stroke:#59636e}.k{stroke:#8c959f}
.l0{stroke:#0b62d6}.l1{stroke:#c2570c}.l2{stroke:#0f7b6c}.l3{stroke:#7a3db8}
.f0{fill:#0b62d6}.f1{fill:#c2570c}.f2{fill:#0f7b6c}.f3{fill:#7a3db8}
@media (prefers-color-scheme:dark){.b{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#9198a1}.g{stroke:#2b323b}.a{stroke:#9198a1}.k{stroke:#6e7681}
.l0{stroke:#58a6ff}.l1{stroke:#f0883e}.l2{stroke:#3fc8b4}.l3{stroke:#c297ff}
.f0{fill:#58a6ff}.f1{fill:#f0883e}.f2{fill:#3fc8b4}.f3{fill:#c297ff}}
text{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}.h{font-size:16px;font-weight:600}.s{font-size:10.5px}
`

var dashes = [maxSeries]string{"", "7 4", "2 3", "9 3 2 3"}

// pen writes elements.
type pen struct {
	bytes.Buffer
	c      Chart
	x, y   scale
	note   []string
	keys   []spot // of the legend
	top    float64
	bottom float64
}

type spot struct{ x, y float64 }

// SVG draws the chart.
func (c Chart) SVG() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	p := &pen{c: c}
	p.layOut()
	p.fit()
	height := p.bottom + 52 + footLine*float64(len(c.Foot)) + 6
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %s" width="%d" height="%s" role="img" aria-label="%s">`+"\n", width, num(height), width, num(height), escape(c.Title))
	fmt.Fprintf(p, "<title>%s</title>\n<style>%s</style>\n", escape(c.Title), style)
	fmt.Fprintf(p, `<rect class="b" width="%d" height="%s"/>`+"\n", width, num(height))
	p.text(left, 26, "h t", "start", c.Title)
	for i, line := range p.note {
		p.text(left, 46+noteLine*float64(i), "m", "start", line)
	}
	p.legend()
	p.axes()
	p.marks()
	if len(c.Groups) > 0 {
		p.bars()
	} else {
		p.lines()
	}
	for i, line := range c.Foot {
		p.text(left, p.bottom+56+footLine*float64(i), "s m", "start", line)
	}
	p.WriteString("</svg>\n")
	return p.Bytes(), nil
}

// layOut breaks the note into lines and the legend into rows; what is below
// moves down.
func (p *pen) layOut() {
	for _, word := range strings.Fields(p.c.Note) {
		last := len(p.note) - 1
		if last < 0 || letter*float64(len([]rune(p.note[last]+" "+word))) > width-left-right {
			p.note = append(p.note, word)
			continue
		}
		p.note[last] += " " + word
	}
	x, y := float64(left), 48+noteLine*float64(len(p.note))
	for _, s := range p.c.Series {
		wide := 28 + letter*float64(len([]rune(s.Name)))
		if x > left && x+wide > width-right {
			x, y = left, y+legendLine
		}
		p.keys = append(p.keys, spot{x, y})
		x += wide + 18
	}
	p.top = y + 28
	p.bottom = p.top + plotHeight
}

// fit chooses the scales so that every point and mark has a place.
func (p *pen) fit() {
	var xs, ys []float64
	for _, s := range p.c.Series {
		for _, pt := range s.Points {
			xs, ys = append(xs, pt.X), append(ys, pt.Y)
		}
	}
	for _, m := range p.c.Marks {
		if m.Vertical {
			xs = append(xs, m.Value)
		} else {
			ys = append(ys, m.Value)
		}
	}
	p.x, p.y = p.c.X.scaleOf(xs), p.c.Y.scaleOf(ys)
}

func (p *pen) px(v float64) float64 { return left + (width-left-right)*p.x.at(v) }
func (p *pen) py(v float64) float64 { return p.bottom - plotHeight*p.y.at(v) }

func (p *pen) text(x, y float64, class, anchor, s string) {
	if s != "" {
		fmt.Fprintf(p, `<text x="%s" y="%s" class="%s" text-anchor="%s">%s</text>`+"\n", num(x), num(y), class, anchor, escape(s))
	}
}

func (p *pen) line(x1, y1, x2, y2 float64, class, more string) {
	fmt.Fprintf(p, `<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"%s/>`+"\n", num(x1), num(y1), num(x2), num(y2), class, more)
}

func (p *pen) legend() {
	for i, s := range p.c.Series {
		x, y := p.keys[i].x, p.keys[i].y
		if len(p.c.Groups) > 0 {
			fmt.Fprintf(p, `<rect x="%s" y="%s" width="22" height="10" class="f%d"/>`+"\n", num(x), num(y-5), i)
		} else {
			p.line(x, y, x+22, y, fmt.Sprintf("l%d", i), stroke(i))
			if !s.Plain {
				p.sign(i, x+11, y)
			}
		}
		p.text(x+28, y+4, "t", "start", s.Name)
	}
}

func (p *pen) axes() {
	for _, v := range p.y.ticks {
		p.line(left, p.py(v), width-right, p.py(v), "g", "")
		p.text(left-8, p.py(v)+4, "m", "end", tickText(v))
	}
	p.line(left, p.bottom, width-right, p.bottom, "a", "")
	middle := p.bottom - plotHeight/2
	fmt.Fprintf(p, `<text x="18" y="%s" class="t" text-anchor="middle" transform="rotate(-90 18 %s)">%s</text>`+"\n", num(middle), num(middle), escape(p.c.Y.Label))
	p.text(left+(width-left-right)/2, p.bottom+36, "t", "middle", p.c.X.Label)
	if len(p.c.Groups) > 0 {
		return
	}
	for _, v := range p.x.ticks {
		p.line(p.px(v), p.bottom, p.px(v), p.bottom+5, "a", "")
		p.text(p.px(v), p.bottom+18, "m", "middle", tickText(v))
	}
}

func (p *pen) marks() {
	for _, m := range p.c.Marks {
		if m.Vertical {
			x := p.px(m.Value)
			p.line(x, p.top, x, p.bottom, "k", ` stroke-dasharray="4 4"`)
			p.text(x+5, p.top+10, "s m", "start", m.Label)
			continue
		}
		y := p.py(m.Value)
		p.line(left, y, width-right, y, "k", ` stroke-dasharray="4 4"`)
		p.text(width-right, y-5, "s m", "end", m.Label)
	}
}

func (p *pen) lines() {
	for i, s := range p.c.Series {
		points := slices.Clone(s.Points)
		slices.SortStableFunc(points, func(a, b Point) int {
			switch {
			case a.X < b.X:
				return -1
			case a.X > b.X:
				return 1
			}
			return 0
		})
		var at []string
		for _, pt := range points {
			at = append(at, num(p.px(pt.X))+","+num(p.py(pt.Y)))
		}
		fmt.Fprintf(p, `<polyline points="%s" class="l%d" fill="none"%s/>`+"\n", strings.Join(at, " "), i, stroke(i))
		for _, pt := range points {
			if !s.Plain {
				p.sign(i, p.px(pt.X), p.py(pt.Y))
			}
			p.text(p.px(pt.X), p.py(pt.Y)-8, "s t", "middle", pt.Text)
		}
	}
}

func stroke(i int) string {
	if dashes[i] == "" {
		return ` stroke-width="2"`
	}
	return ` stroke-width="2" stroke-dasharray="` + dashes[i] + `"`
}

// sign is the form of a series' points.
func (p *pen) sign(i int, x, y float64) {
	switch i {
	case 0:
		fmt.Fprintf(p, `<circle cx="%s" cy="%s" r="3.5" class="f0"/>`+"\n", num(x), num(y))
	case 1:
		fmt.Fprintf(p, `<rect x="%s" y="%s" width="7" height="7" class="f1"/>`+"\n", num(x-3.5), num(y-3.5))
	case 2:
		fmt.Fprintf(p, `<path d="M%s %sl4.5 8h-9z" class="f2"/>`+"\n", num(x), num(y-5))
	default:
		fmt.Fprintf(p, `<path d="M%s %sl5 5-5 5-5-5z" class="f3"/>`+"\n", num(x), num(y-5))
	}
}

func (p *pen) bars() {
	group := float64(width-left-right) / float64(len(p.c.Groups))
	bar := group * 0.8 / float64(len(p.c.Series))
	for g, name := range p.c.Groups {
		begin := left + group*(float64(g)+0.1)
		p.text(begin+group*0.4, p.bottom+18, "m", "middle", name)
		for i, s := range p.c.Series {
			pt, x := s.Points[g], begin+bar*float64(i)
			y := p.py(pt.Y)
			fmt.Fprintf(p, `<rect x="%s" y="%s" width="%s" height="%s" class="f%d"/>`+"\n", num(x+1), num(y), num(bar-2), num(p.bottom-y), i)
			p.text(x+bar/2, y-5, "s t", "middle", pt.Text)
		}
	}
}

// num writes a coordinate with at most one digit after the point.
func num(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// tickText writes a value as people do: 1 600, 0.25.
func tickText(v float64) string {
	whole, part, _ := strings.Cut(strconv.FormatFloat(v, 'f', 4, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + " " + whole[i:]
	}
	if part = strings.TrimRight(part, "0"); part == "" {
		return whole
	}
	return whole + "." + part
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
