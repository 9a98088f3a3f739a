package wechat

import "context"

// APISubscriptionList lists the account's templates of subscription messages.
const APISubscriptionList API = "subscription_list"

// SubscriptionTemplate is one of the account's templates of subscription messages.
type SubscriptionTemplate struct {
	ID      string `json:"priTmplId"`
	Title   string `json:"title"`
	Content string `json:"content"` // with its keys, as {{thing1.DATA}}
	Example string `json:"example"`
}

// SubscriptionTemplateList returns the account's templates of subscription
// messages.
func (c *Client) SubscriptionTemplateList(ctx context.Context, token string) ([]SubscriptionTemplate, error) {
	var out struct {
		answer
		Data []SubscriptionTemplate `json:"data"`
	}
	if err := c.withToken(ctx, APISubscriptionList, token, nil, nil, &out); err != nil {
		return nil, err
	}
	return out.Data, nil
}
