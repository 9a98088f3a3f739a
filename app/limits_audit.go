package app

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"tidegate/pkg/api"
	"tidegate/pkg/control"
	"tidegate/pkg/fault"
)

// auditView is the answer of GET /ops/v1/audit.
type auditView struct {
	Entries []auditEntry `json:"entries"`
	// Proof is there if it was asked for.
	Proof *auditProof `json:"proof,omitempty"`
}

type auditEntry struct {
	Version   int64           `json:"version"`
	At        string          `json:"at"`
	By        string          `json:"by"`
	Kind      string          `json:"kind"`
	Subject   string          `json:"subject"`
	From      json.RawMessage `json:"from,omitempty"`
	To        json.RawMessage `json:"to,omitempty"`
	Reason    string          `json:"reason"`
	ExpiresAt string          `json:"expires_at,omitempty"`
	Hash      string          `json:"hash"`
}

// auditProof says whether the audit is whole.
type auditProof struct {
	Entries int64  `json:"entries"`
	Head    string `json:"head"`
	Broken  string `json:"broken,omitempty"`
}

func (h limitsHandler) audit(w http.ResponseWriter, r *http.Request) {
	v, err := h.viewAudit(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, v)
}

func (h limitsHandler) viewAudit(r *http.Request) (*auditView, error) {
	p, err := api.ParseParams(r, "kind", "subject", "before", "limit", "verify")
	if err != nil {
		return nil, err
	}
	q := control.LogQuery{Kind: p.Get("kind"), Subject: p.Get("subject"), Limit: 20}
	for name, field := range map[string]func(int64){
		"before": func(n int64) { q.Before = n },
		"limit":  func(n int64) { q.Limit = int(min(n, 1000)) },
	} {
		text := p.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || name == "limit" && n > 1000 {
			return nil, fault.New(fault.Invalid, limitsOp, "%s is %q: use a whole number from 1 (limit: at most 1000)", name, text).WithField(name)
		}
		field(n)
	}
	entries, err := h.panel.Log(r.Context(), q)
	if err != nil {
		return nil, err
	}
	v := &auditView{Entries: make([]auditEntry, len(entries))}
	for i, e := range entries {
		v.Entries[i] = auditEntry{Version: e.Version, At: e.At.Format(time.RFC3339Nano), By: e.By, Kind: e.Kind, Subject: e.Subject, From: e.Old, To: e.New, Reason: e.Reason, Hash: e.Hash}
		if !e.ExpiresAt.IsZero() {
			v.Entries[i].ExpiresAt = e.ExpiresAt.Format(time.RFC3339)
		}
	}
	switch text := p.Get("verify"); text {
	case "", "false":
		return v, nil
	case "true":
		proof, err := h.panel.Verify(r.Context())
		v.Proof = &auditProof{Entries: proof.Entries, Head: proof.Head, Broken: proof.Broken}
		return v, err
	default:
		return nil, fault.New(fault.Invalid, limitsOp, "verify is %q: use true or false", text).WithField("verify")
	}
}
