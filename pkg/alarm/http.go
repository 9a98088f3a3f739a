package alarm

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// firing is one alarm as GET /ops/v1/alarms gives it.
type firing struct {
	Name     string    `json:"name"`
	Title    string    `json:"title"`
	Subject  string    `json:"subject"`
	Severity Severity  `json:"severity"`
	Text     string    `json:"text"`
	Local    bool      `json:"local"`
	Since    time.Time `json:"since"`
}

// Handler answers with what fires now in this process, the oldest first.
func (b *Board) Handler(node string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all := b.Firing()
		slices.SortFunc(all, func(x, y Transition) int {
			return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Subject, y.Subject))
		})
		out := struct {
			Node   string   `json:"node"`
			Alarms []firing `json:"alarms"`
		}{node, make([]firing, 0, len(all))}
		for _, t := range all {
			out.Alarms = append(out.Alarms, firing{t.Name, titleOf(t.Name, English), t.Subject, t.Severity, t.Text, t.Local, t.Since})
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(out) // a client that went away is told nothing
	})
}
