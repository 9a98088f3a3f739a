package wechat

import (
	"context"
	"errors"
	"net/url"
	"time"

	"tidegate/pkg/fault"
)

// AccessToken is a token and how long WeChat says it still lives.
type AccessToken struct {
	Token string
	Life  time.Duration
}

// StableToken asks for the account's stable token. Without force it returns
// the current one and changes nothing; with force WeChat makes the current one
// invalid at once, which it allows 20 times a day and every 30 s at most.
func (c *Client) StableToken(ctx context.Context, appID, secret string, force bool) (AccessToken, error) {
	body := struct {
		GrantType string `json:"grant_type"`
		AppID     string `json:"appid"`
		Secret    string `json:"secret"`
		Force     bool   `json:"force_refresh"`
	}{"client_credential", appID, secret, force}
	var out tokenAnswer
	err := c.call(ctx, APIStableToken, nil, body, &out, secret)
	return out.token(APIStableToken, err)
}

// Token asks for a token of the older kind. Each call makes a new one; the one
// before lives on for about five minutes. It and StableToken do not know each
// other's tokens: one account uses one of the two.
func (c *Client) Token(ctx context.Context, appID, secret string) (AccessToken, error) {
	query := url.Values{"grant_type": {"client_credential"}, "appid": {appID}, "secret": {secret}}
	var out tokenAnswer
	err := c.call(ctx, APIToken, query, nil, &out, secret)
	return out.token(APIToken, err)
}

type tokenAnswer struct {
	answer
	Token   string      `json:"access_token"`
	Expires wholeNumber `json:"expires_in"`
}

// token checks what came: a token that cannot stand in an address, or a life
// that is over, must not replace a working one.
func (a *tokenAnswer) token(api API, err error) (AccessToken, error) {
	if err != nil {
		return AccessToken{}, err
	}
	const longest = 30 * 24 * 3600
	if a.Token == "" || !isPrintable(a.Token, maxToken) || a.Expires <= 0 || a.Expires > longest {
		return AccessToken{}, &APIError{API: api, HTTPStatus: 200, Err: errors.New("the answer holds no usable token")}
	}
	return AccessToken{Token: a.Token, Life: time.Duration(a.Expires) * time.Second}, nil
}

// withToken makes a call that needs an access token.
func (c *Client) withToken(ctx context.Context, api API, token string, query url.Values, body any, out outcomeOf) error {
	if token == "" || !isPrintable(token, maxToken) {
		return fault.New(fault.Invalid, "call "+string(api), "the access token is empty or malformed").WithField("access_token")
	}
	if query == nil {
		query = url.Values{}
	}
	query.Set("access_token", token)
	return c.call(ctx, api, query, body, out, token)
}

// Typing shows or hides "typing…" in the user's chat. WeChat takes it only
// within 30 s of the user's last message.
func (c *Client) Typing(ctx context.Context, token, openID string, on bool) error {
	if !IsOpenID(openID) {
		return sendError(APITyping, "touser", "it is not an openid")
	}
	command := "Typing"
	if !on {
		command = "CancelTyping"
	}
	body := struct {
		ToUser  string `json:"touser"`
		Command string `json:"command"`
	}{openID, command}
	var out answer
	return c.withToken(ctx, APITyping, token, nil, body, &out)
}

// Quota is what WeChat counts for one call.
type Quota struct {
	DailyLimit, Used, Remain int64
	// Rate is the limit over a short time; Per is zero if there is none.
	Rate Rate
	// ComponentRate is the same for a third-party platform.
	ComponentRate Rate
}

// Rate is a number of calls in a time.
type Rate struct {
	Calls int64
	Per   time.Duration
}

type rateAnswer struct {
	Calls   wholeNumber `json:"call_count"`
	Seconds wholeNumber `json:"refresh_second"`
}

// rate refuses spans that are no spans: nobody counts over more than a day.
func (r rateAnswer) rate() Rate {
	if r.Calls <= 0 || r.Seconds <= 0 || r.Seconds > 24*3600 {
		return Rate{}
	}
	return Rate{Calls: int64(r.Calls), Per: time.Duration(r.Seconds) * time.Second}
}

// QuotaGet asks how much of a call's quota is left. WeChat's numbers may be
// off by about one in a hundred.
func (c *Client) QuotaGet(ctx context.Context, token string, of API) (Quota, error) {
	body := struct {
		Path string `json:"cgi_path"`
	}{of.Path()}
	var out struct {
		answer
		Quota struct {
			DailyLimit wholeNumber `json:"daily_limit"`
			Used       wholeNumber `json:"used"`
			Remain     wholeNumber `json:"remain"`
		} `json:"quota"`
		Rate          rateAnswer `json:"rate_limit"`
		ComponentRate rateAnswer `json:"component_rate_limit"`
	}
	if err := c.withToken(ctx, APIQuotaGet, token, nil, body, &out); err != nil {
		return Quota{}, err
	}
	return Quota{
		DailyLimit:    int64(out.Quota.DailyLimit),
		Used:          int64(out.Quota.Used),
		Remain:        int64(out.Quota.Remain),
		Rate:          out.Rate.rate(),
		ComponentRate: out.ComponentRate.rate(),
	}, nil
}

// UserPage is one page of the account's followers.
type UserPage struct {
	Total   int64
	OpenIDs []string
	// Next is what to ask for the following page; empty on the last one.
	Next string
}

// UserGet reads the followers behind next, up to 10,000; an empty next starts
// at the first. Reading is over when Next is empty: WeChat's own field is not
// empty on the last page that holds somebody, and the page after it has neither
// data nor end mark, which has led others into endless loops.
func (c *Client) UserGet(ctx context.Context, token, next string) (UserPage, error) {
	query := url.Values{}
	if next != "" {
		query.Set("next_openid", next)
	}
	var out struct {
		answer
		Total wholeNumber `json:"total"`
		Count wholeNumber `json:"count"`
		Data  struct {
			OpenIDs []string `json:"openid"`
		} `json:"data"`
		Next string `json:"next_openid"`
	}
	if err := c.withToken(ctx, APIUserGet, token, query, nil, &out); err != nil {
		return UserPage{}, err
	}
	page := UserPage{Total: int64(out.Total), OpenIDs: out.Data.OpenIDs, Next: out.Next}
	if out.Count == 0 || len(page.OpenIDs) == 0 || page.Next == next {
		page.Next = ""
	}
	return page, nil
}

// Template is one of the account's message templates.
type Template struct {
	ID              string `json:"template_id"`
	Title           string `json:"title"`
	PrimaryIndustry string `json:"primary_industry"`
	DeputyIndustry  string `json:"deputy_industry"`
	Content         string `json:"content"` // with its keys, as {{thing1.DATA}}
	Example         string `json:"example"`
}

// TemplateList returns the account's message templates.
func (c *Client) TemplateList(ctx context.Context, token string) ([]Template, error) {
	var out struct {
		answer
		Templates []Template `json:"template_list"`
	}
	if err := c.withToken(ctx, APITemplateList, token, nil, nil, &out); err != nil {
		return nil, err
	}
	return out.Templates, nil
}
