package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/app/figures/chart"
)

var update = flag.Bool("update", false, "write the golden files anew")

func lines() chart.Chart {
	return chart.Chart{
		Title: "Calls at once", Note: "a system of 100 resources",
		X: chart.Axis{Label: "users", Log: true}, Y: chart.Axis{Label: "calls at once"},
		Series: []chart.Series{
			{Name: "without", Points: []chart.Point{{X: 100, Y: 100}, {X: 10, Y: 10}, {X: 1600, Y: 1600}}},
			{Name: "with", Points: []chart.Point{{X: 10, Y: 10}, {X: 100, Y: 40}, {X: 1600, Y: 40, Text: "40"}}},
		},
		Marks: []chart.Mark{{Value: 30, Vertical: true, Label: "threshold"}, {Value: 100, Label: "R = 100"}},
		Foot:  []string{"tidegate figures --only 000/7", "2 cores"},
	}
}

func bars() chart.Chart {
	return chart.Chart{
		Title: "Users served", X: chart.Axis{Label: "answered within"}, Y: chart.Axis{Label: "users"},
		Groups: []string{"0.1 s", "1 s", "2.5 s"},
		Series: []chart.Series{
			{Name: "ordinary", Points: []chart.Point{{Y: 200}, {Y: 400}, {Y: 700}}},
			{Name: "guarded", Points: []chart.Point{{Y: 900}, {Y: 1500}, {Y: 2400, Text: "> 2 400"}}},
		},
	}
}

func TestGolden(t *testing.T) {
	for name, c := range map[string]chart.Chart{"lines": lines(), "bars": bars()} {
		got, err := c.SVG()
		require.NoError(t, err)
		path := "testdata/" + name + ".svg"
		if *update {
			require.NoError(t, os.WriteFile(path, got, 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "if the change is meant: go test ./app/figures/chart -update, and look at the picture")
	}
}

// texts reads a picture as an XML reader does and gives what it says.
func texts(t *testing.T, svg []byte) (all []string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	d.Strict = true
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if c, ok := token.(xml.CharData); ok {
			all = append(all, string(c))
		}
	}
}

func TestAnyTextIsWellFormed(t *testing.T) {
	const hostile = `</text><script>alert("1")</script>&amp; ]]> <!--`
	c := lines()
	c.Title, c.Note, c.X.Label, c.Y.Label, c.Series[0].Name, c.Marks[0].Label = hostile, hostile, hostile, hostile, hostile, hostile
	c.Foot = []string{hostile + "\x00\xff"}
	got, err := c.SVG()
	require.NoError(t, err)
	require.NotContains(t, string(got), "<script")
	require.Contains(t, texts(t, got), hostile)
}

func TestEveryPointHasItsPlace(t *testing.T) {
	got, err := lines().SVG()
	require.NoError(t, err)
	require.Contains(t, string(got), `points="70,`, "the smallest value is at the left end of a logarithmic axis, whatever the order of the points")
	require.Contains(t, texts(t, got), "R = 100")
}

func TestWhatHasNoPlaceIsAnError(t *testing.T) {
	for name, change := range map[string]func(*chart.Chart){
		"no series": func(c *chart.Chart) { c.Series = nil },
		"too many":  func(c *chart.Chart) { c.Series = make([]chart.Series, 5) },
		"no points": func(c *chart.Chart) { c.Series[0].Points = nil },
		"no number": func(c *chart.Chart) { c.Series[0].Points[0].Y = math.NaN() },
		"infinite":  func(c *chart.Chart) { c.Series[0].Points[0].Y = math.Inf(1) },
		"negative":  func(c *chart.Chart) { c.Series[0].Points[0].Y = -1 },
		"log of 0":  func(c *chart.Chart) { c.Series[0].Points[0].X = 0 },
		"groups":    func(c *chart.Chart) { c.Groups = []string{"one"} },
	} {
		c := lines()
		change(&c)
		_, err := c.SVG()
		require.Error(t, err, name)
	}
}

func TestFlatSeriesHaveAPicture(t *testing.T) {
	c := lines()
	c.X.Log, c.Marks = false, nil
	for i := range c.Series {
		c.Series[i].Points = []chart.Point{{X: 0, Y: 0}}
	}
	got, err := c.SVG()
	require.NoError(t, err)
	require.NotContains(t, string(got), "NaN")
}
