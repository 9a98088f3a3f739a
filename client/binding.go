package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// Binding ties a follower of an account to a user of the business.
type Binding struct {
	Account string `json:"account"`
	OpenID  string `json:"openid"`
	User    string `json:"user"`
}

// Bind ties a follower to a user. When it returns without an error the authority
// has agreed, and no robot takes the follower for anybody else any more. A Problem
// with Errcode "ambiguous" may say that the authority has agreed and that robots
// could not be told yet: bind again until there is no error.
func (c *Client) Bind(ctx context.Context, account, openid, user string) error {
	body, err := json.Marshal(map[string]string{"user": user})
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return c.call(ctx, http.MethodPut, c.binding(account, openid), nil, body, http.StatusOK, nil)
}

// Unbind unties a follower; one who is not bound is untied already. Errors are as
// for Bind.
func (c *Client) Unbind(ctx context.Context, account, openid string) error {
	return c.call(ctx, http.MethodDelete, c.binding(account, openid), nil, nil, http.StatusNoContent, nil)
}

// Binding gives the user of a follower, "" if he is not bound.
func (c *Client) Binding(ctx context.Context, account, openid string) (user string, err error) {
	var b Binding
	err = c.call(ctx, http.MethodGet, c.binding(account, openid), nil, nil, http.StatusOK, &b)
	var p *Problem
	if errors.As(err, &p) && p.Status == http.StatusNotFound && p.Field == "openid" {
		return "", nil
	}
	return b.User, err
}

// Followers gives the followers of an account that are bound to a user.
func (c *Client) Followers(ctx context.Context, account, user string) (openids []string, err error) {
	var list struct {
		OpenIDs []string `json:"openids"`
	}
	err = c.call(ctx, http.MethodGet, c.bindings+"/v1/accounts/"+url.PathEscape(account)+"/bindings?user="+url.QueryEscape(user), nil, nil, http.StatusOK, &list)
	return list.OpenIDs, err
}

// Erasure says what an erasure did, and what it does not reach.
type Erasure struct {
	Erased []string `json:"erased"`
	Kept   []string `json:"kept"`
}

// Erase removes what robots keep of a follower. It may be repeated.
func (c *Client) Erase(ctx context.Context, account, openid string) (e Erasure, err error) {
	err = c.call(ctx, http.MethodDelete, c.bindings+"/v1/accounts/"+url.PathEscape(account)+"/users/"+url.PathEscape(openid)+"/data", nil, nil, http.StatusOK, &e)
	return e, err
}

func (c *Client) binding(account, openid string) string {
	return c.bindings + "/v1/accounts/" + url.PathEscape(account) + "/bindings/" + url.PathEscape(openid)
}
