package wechatsim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// endpoint is one path of the API.
type endpoint struct {
	method string
	// open calls carry no access token.
	open bool
	do   func(c *call) (any, *apiError)
}

// endpoints is the API that the simulator answers.
func endpoints() map[string]endpoint {
	return map[string]endpoint{
		PathToken:         {http.MethodGet, true, plainToken},
		PathStableToken:   {http.MethodPost, true, stableToken},
		PathCustomSend:    {http.MethodPost, false, customSend},
		PathCustomTyping:  {http.MethodPost, false, customTyping},
		PathTemplateSend:  {http.MethodPost, false, templateSend},
		PathBizSend:       {http.MethodPost, false, bizSend},
		PathTemplateList:  {http.MethodGet, false, templateList},
		PathSubscriptions: {http.MethodGet, false, subscriptionList},
		PathQuotaGet:      {http.MethodPost, false, quotaGet},
		PathClearQuota:    {http.MethodPost, false, clearQuota},
		PathClearQuotaV2:  {http.MethodPost, true, clearQuotaV2},
		PathUserGet:       {http.MethodGet, false, userGet},
		PathUserInfo:      {http.MethodGet, false, userInfo},
		PathUserBatch:     {http.MethodPost, false, userBatch},
		PathAPIDomainIP:   {http.MethodGet, false, apiDomainIP},
		PathCallbackIP:    {http.MethodGet, false, callbackIP},
		PathCallbackCheck: {http.MethodPost, false, callbackCheck},
	}
}

// call is one request to the API while it is worked on.
type call struct {
	sim    *Sim
	acct   *account
	now    time.Time
	method string
	path   string
	query  url.Values
	body   []byte
	remote string
	entry  *Entry
	// receipt is scheduled once the arrival is in the journal.
	receipt *receipt
}

// unknownPath stands in the journal for every path that WeChat does not have, so
// that a caller cannot fill the statistics with names.
const unknownPath = "unknown path"

// okBody is the plain success.
type okBody struct {
	Errcode int    `json:"errcode"`
	Errmsg  string `json:"errmsg"`
}

var ok = okBody{0, "ok"}

// serveAPI answers one API request. The order is the contract: read, decide,
// write the arrival, run the hook, answer.
func (s *Sim) serveAPI(w http.ResponseWriter, r *http.Request) {
	entry := Entry{Kind: KindArrival, What: r.URL.Path}
	c := &call{sim: s, now: s.clock.Now(), method: r.Method, path: r.URL.Path, query: r.URL.Query(), entry: &entry}
	c.remote, _, _ = net.SplitHostPort(r.RemoteAddr)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.Limits.BodyBytes))
	if err != nil {
		var tooBig *http.MaxBytesError
		if errors.As(err, &tooBig) {
			writeHTML(w, http.StatusRequestEntityTooLarge, "413 Request Entity Too Large")
		}
		return // a request cut off by its sender did not arrive
	}
	c.body = body
	if _, known := s.api[c.path]; !known {
		entry.What, entry.Text = unknownPath, clip(c.path)
	}
	token, refused := c.identify()
	c.describe()
	hit := s.faults.pick(apiFaults, c.path, c.accountID(), entry.OpenID)
	bent, isBent := first(hit, FaultErrcode, FaultReset, FaultHang, FaultHTML, FaultGarbage, FaultTruncate)
	var answer any
	if !isBent || bent.Applied {
		answer = c.run(token, refused)
	}
	if isBent && bent.Do == FaultErrcode {
		answer = refusal(bent.Errcode).body()
		entry.Errcode = bent.Errcode
	}
	for _, f := range hit {
		entry.Fault = strings.TrimPrefix(entry.Fault+"+"+f.Do, "+")
	}
	entry = s.journal.append(entry)
	if s.hook != nil {
		s.hook(entry)
	}
	early := c.schedule()
	if f, slow := first(hit, FaultSlow); slow && pause2(r.Context(), s.life, f.delay()) != nil {
		panic(http.ErrAbortHandler)
	}
	if early != nil && pauseUntil(r.Context(), s.life, early) != nil {
		panic(http.ErrAbortHandler)
	}
	s.answer(w, r, bent, isBent, answer)
}

// answer writes what the caller gets, bent by a fault or straight.
func (s *Sim) answer(w http.ResponseWriter, r *http.Request, f Fault, bent bool, answer any) {
	if !bent || f.Do == FaultErrcode {
		w.Header().Set("Content-Type", "application/json; encoding=utf-8")
		_, _ = w.Write(bytes.TrimRight(encodeJSON(answer), "\n"))
		return
	}
	switch f.Do {
	case FaultHang:
		_ = pauseUntil(r.Context(), s.life, nil)
	case FaultHTML:
		status := f.Status
		if status == 0 {
			status = http.StatusBadGateway
		}
		writeHTML(w, status, "502 Bad Gateway")
		return
	case FaultGarbage:
		_, _ = w.Write([]byte("\x00\x01ok?"))
		return
	case FaultTruncate:
		w.Header().Set("Content-Length", "64")
		_, _ = w.Write([]byte(`{"errcode":`))
		_ = http.NewResponseController(w).Flush()
	}
	reset(w)
}

// reset cuts the connection so that the caller sees a reset, not a clean end.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // no connection to take over: HTTP/2 or in-process
	}
	if tcp, isTCP := conn.(*net.TCPConn); isTCP {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func writeHTML(w http.ResponseWriter, status int, title string) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<html>\n<head><title>"+title+"</title></head>\n<body>\n<center><h1>"+title+"</h1></center>\n</body>\n</html>\n")
}

// run decides: the right path, method, token and quota, then the endpoint.
func (c *call) run(tokenCode int, refused *apiError) any {
	body, err := c.decide(tokenCode, refused)
	if err != nil {
		c.entry.Errcode = err.code
		return err.body()
	}
	return body
}

func (c *call) decide(tokenCode int, refused *apiError) (any, *apiError) {
	ep, known := c.sim.api[c.path]
	switch {
	case !known:
		return nil, refusal(errInvalidURL)
	case c.method != ep.method && ep.method == http.MethodGet:
		return nil, refusal(errRequireGet)
	case c.method != ep.method:
		return nil, refusal(errRequirePost)
	}
	if !ep.open {
		if refused != nil {
			return nil, refused
		}
		if tokenCode != 0 {
			return nil, refusal(tokenCode)
		}
		if err := c.admit(); err != nil {
			return nil, err
		}
	}
	if ep.method == http.MethodPost {
		if err := c.checkBody(); err != nil {
			return nil, err
		}
	}
	return ep.do(c)
}

// admit checks the account's rights and spends its quota.
func (c *call) admit() *apiError {
	if slices.Contains(c.acct.cfg.DeniedAPIs, c.path) {
		return refusal(errUnauthorizedAPI)
	}
	c.acct.mu.Lock()
	defer c.acct.mu.Unlock()
	if code := c.acct.quota.spend(c.path, c.now); code != 0 {
		return refusal(code)
	}
	return nil
}

// checkBody holds the rules for every body: UTF-8 JSON, one object, no BOM.
func (c *call) checkBody() *apiError {
	if len(c.body) == 0 {
		return refusal(errEmptyBody)
	}
	trimmed := bytes.TrimSpace(c.body)
	if !utf8.Valid(c.body) || !json.Valid(c.body) || trimmed[0] != '{' {
		return refusal(errDataFormat)
	}
	if code := c.sim.cfg.Open.EscapeErrcode; code != 0 && hasUnicodeEscape(c.body) {
		return refusal(code)
	}
	return nil
}

// hasUnicodeEscape finds \uXXXX where the backslash is not itself escaped.
func hasUnicodeEscape(b []byte) bool {
	for i := 0; i+1 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		if b[i+1] == 'u' {
			return true
		}
		i++
	}
	return false
}

// decode reads the body into v; a wrong type is a format error.
func (c *call) decode(v any) *apiError {
	if err := json.Unmarshal(c.body, v); err != nil {
		return refusal(errDataFormat)
	}
	return nil
}

func (c *call) accountID() string {
	if c.acct == nil {
		return ""
	}
	return c.acct.cfg.AppID
}

// pause2 waits for d while both contexts live.
func pause2(request, life context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-request.Done():
		return request.Err()
	case <-life.Done():
		return errClosed
	}
}

// pauseUntil waits for ready (nil: for ever) while both contexts live.
func pauseUntil(request, life context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-request.Done():
		return request.Err()
	case <-life.Done():
		return errClosed
	}
}
