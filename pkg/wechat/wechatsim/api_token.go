package wechatsim

import (
	"encoding/json"
	"slices"
	"strings"
)

// tokenBody is the answer of both token endpoints.
type tokenBody struct {
	AccessToken string `json:"access_token"`
	ExpiresIn   int64  `json:"expires_in"`
}

// identify finds the account a request speaks for: by its access token, or, for
// token calls, later by appid. It returns the token's errcode, 0 when good.
func (c *call) identify() (int, *apiError) {
	token := c.query.Get("access_token")
	if token == "" {
		return errMissingToken, nil
	}
	for _, a := range c.sim.accounts {
		a.mu.Lock()
		code := a.normal.judge(token, c.now)
		if code < 0 {
			code = a.stable.judge(token, c.now)
		}
		a.mu.Unlock()
		if code >= 0 {
			c.acct, c.entry.Account = a, a.cfg.AppID
			return code, nil
		}
	}
	if looksLikeToken(token) {
		return errInvalidCredential, nil
	}
	return errInvalidToken, nil
}

// describe notes what a send is about, before anything is decided, so that also
// a request that a fault swallows is in the journal with its content.
func (c *call) describe() {
	if c.path != PathCustomSend && c.path != PathTemplateSend && c.path != PathBizSend && c.path != PathCustomTyping {
		return
	}
	var d struct {
		ToUser      string          `json:"touser"`
		MsgType     string          `json:"msgtype"`
		ClientMsgID string          `json:"client_msg_id"`
		Text        json.RawMessage `json:"text"`
	}
	_ = json.Unmarshal(c.body, &d) // what cannot be read stays empty and is refused below
	e := c.entry
	e.OpenID, e.MsgType, e.ClientMsgID = clip(d.ToUser), clip(d.MsgType), clip(d.ClientMsgID)
	e.Tokens = findMarks(string(c.body))
	e.Text = clip(string(c.body))
	var t struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(d.Text, &t) == nil && t.Content != "" {
		e.Text = clip(t.Content)
	}
}

// login finds the account of a token call and checks secret and address.
func (c *call) login(appID, secret string) *apiError {
	if appID == "" {
		return refusal(errMissingAppID)
	}
	if secret == "" {
		return refusal(errMissingSecret)
	}
	for _, a := range c.sim.accounts {
		if a.cfg.AppID == appID {
			c.acct, c.entry.Account = a, appID
		}
	}
	switch {
	case c.acct == nil || c.acct.cfg.AppID != appID:
		return refusal(errInvalidAppID)
	case c.acct.cfg.Secret != secret:
		return refusal(errInvalidSecret)
	}
	return c.fromWhitelist()
}

func (c *call) fromWhitelist() *apiError {
	list := c.acct.cfg.IPWhitelist
	if len(list) == 0 || slices.Contains(list, c.remote) {
		return nil
	}
	mapped := c.remote
	if !strings.Contains(mapped, ":") {
		mapped = "::ffff:" + mapped
	}
	return &apiError{errNotWhitelisted, "invalid ip " + c.remote + " ipv6 " + mapped + ", not in whitelist"}
}

func plainToken(c *call) (any, *apiError) {
	if c.query.Get("grant_type") != "client_credential" {
		return nil, refusal(errGrantType)
	}
	if err := c.login(c.query.Get("appid"), c.query.Get("secret")); err != nil {
		return nil, err
	}
	if err := c.admit(); err != nil {
		return nil, err
	}
	a := c.acct
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.normal.issue(c.now, a.limits.TokenLife, a.limits.TokenOverlap)
	return c.granted(t), nil
}

func stableToken(c *call) (any, *apiError) {
	var q struct {
		GrantType    string `json:"grant_type"`
		AppID        string `json:"appid"`
		Secret       string `json:"secret"`
		ForceRefresh bool   `json:"force_refresh"`
	}
	if err := c.decode(&q); err != nil {
		return nil, err
	}
	if q.GrantType != "client_credential" {
		return nil, refusal(errGrantType)
	}
	if err := c.login(q.AppID, q.Secret); err != nil {
		return nil, err
	}
	if err := c.admit(); err != nil {
		return nil, err
	}
	a := c.acct
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.ForceRefresh {
		c.entry.MsgType = "force_refresh"
		return c.granted(a.stable.force(c.now, a.limits)), nil
	}
	return c.granted(a.stable.current(c.now, a.limits)), nil
}

func (c *call) granted(t issued) tokenBody {
	c.entry.Applied = true
	return tokenBody{t.text, int64(t.until.Sub(c.now).Seconds())}
}
