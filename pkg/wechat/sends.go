package wechat

import (
	"context"

	"tidegate/pkg/fault"
)

// SendResult is what WeChat answers to an accepted send. It says that the
// message was taken, not that it arrived.
type SendResult struct {
	// MsgID is WeChat's id of the message, by which the receipt names it; empty
	// when WeChat gave none, as it does not for customer-service messages.
	MsgID string
	// Repeated: WeChat knew the message already and did nothing new.
	Repeated bool
}

type sendAnswer struct {
	answer
	MsgID idText `json:"msgid"`
}

func (a *sendAnswer) result(err error) (SendResult, error) {
	if err != nil {
		return SendResult{}, err
	}
	return SendResult{MsgID: string(a.MsgID), Repeated: a.Code != 0}, nil
}

// MiniProgram is a mini program that a message leads to.
type MiniProgram struct {
	AppID    string `json:"appid"`
	PagePath string `json:"pagepath,omitempty"`
}

// Value is the text for one key of a template. WeChat drops values that are
// not wrapped in this way.
type Value struct {
	Value string `json:"value"`
}

// Values wraps the texts for a template's keys.
func Values(texts map[string]string) map[string]Value {
	values := make(map[string]Value, len(texts))
	for k, v := range texts {
		values[k] = Value{Value: v}
	}
	return values
}

// TemplateMessage is a template message. ClientMsgID is the idempotency key:
// within 10 minutes WeChat sends the same user the same key only once.
type TemplateMessage struct {
	ToUser      string           `json:"touser"`
	TemplateID  string           `json:"template_id"`
	URL         string           `json:"url,omitempty"`
	MiniProgram *MiniProgram     `json:"miniprogram,omitempty"`
	ClientMsgID string           `json:"client_msg_id,omitempty"`
	Data        map[string]Value `json:"data"`
}

// TemplateSend sends a template message.
func (c *Client) TemplateSend(ctx context.Context, token string, m TemplateMessage) (SendResult, error) {
	if err := checkTemplate(APITemplateSend, m.ToUser, m.TemplateID, m.Data); err != nil {
		return SendResult{}, err
	}
	var out sendAnswer
	err := c.withToken(ctx, APITemplateSend, token, nil, m, &out)
	return out.result(err)
}

// SubscriptionMessage is a notification that the user subscribed to.
type SubscriptionMessage struct {
	ToUser      string           `json:"touser"`
	TemplateID  string           `json:"template_id"`
	Page        string           `json:"page,omitempty"`
	MiniProgram *MiniProgram     `json:"miniprogram,omitempty"`
	Lang        string           `json:"lang,omitempty"`
	State       string           `json:"miniprogram_state,omitempty"`
	Data        map[string]Value `json:"data"`
	ClientMsgID string           `json:"client_msg_id,omitempty"`
}

// BizSend sends a subscription notification.
func (c *Client) BizSend(ctx context.Context, token string, m SubscriptionMessage) (SendResult, error) {
	if err := checkTemplate(APIBizSend, m.ToUser, m.TemplateID, m.Data); err != nil {
		return SendResult{}, err
	}
	var out sendAnswer
	err := c.withToken(ctx, APIBizSend, token, nil, m, &out)
	return out.result(err)
}

func checkTemplate(api API, openID, templateID string, data map[string]Value) error {
	switch {
	case !IsOpenID(openID):
		return sendError(api, "touser", "it is not an openid")
	case templateID == "":
		return sendError(api, "template_id", "it is empty")
	case data == nil:
		return sendError(api, "data", "it is missing; a template without keys needs an empty object")
	}
	return nil
}

func sendError(api API, field, what string) error {
	return fault.New(fault.Invalid, "call "+string(api), "%s: %s", field, what).WithField(field)
}

// CustomMessage is a customer-service message. Exactly one of its contents is
// set; the message type follows from it.
type CustomMessage struct {
	ToUser        string         `json:"touser"`
	MsgType       string         `json:"msgtype"` // set by CustomSend
	Text          *CustomText    `json:"text,omitempty"`
	Image         *Media         `json:"image,omitempty"`
	Voice         *Media         `json:"voice,omitempty"`
	Video         *Video         `json:"video,omitempty"`
	Music         *Music         `json:"music,omitempty"`
	News          *News          `json:"news,omitempty"`
	MPNews        *Media         `json:"mpnews,omitempty"`
	MPNewsArticle *MPNewsArticle `json:"mpnewsarticle,omitempty"`
	Menu          *Menu          `json:"msgmenu,omitempty"`
	Card          *Card          `json:"wxcard,omitempty"`
	Page          *ProgramPage   `json:"miniprogrampage,omitempty"`
	Desk          *Desk          `json:"customservice,omitempty"`
	AI            *AIContext     `json:"aimsgcontext,omitempty"`
	BusinessID    int64          `json:"businessid,omitempty"`
}

// CustomText may hold links (<a href=…>).
type CustomText struct {
	Content string `json:"content"`
}

// Media names an uploaded file.
type Media struct {
	MediaID string `json:"media_id"`
}

// Video is an uploaded video.
type Video struct {
	MediaID      string `json:"media_id"`
	ThumbMediaID string `json:"thumb_media_id,omitempty"`
	Title        string `json:"title,omitempty"`
	Description  string `json:"description,omitempty"`
}

// Music is a piece of music to play from an address.
type Music struct {
	Title        string `json:"title"`
	Description  string `json:"description"`
	URL          string `json:"musicurl"`
	HQURL        string `json:"hqmusicurl,omitempty"`
	ThumbMediaID string `json:"thumb_media_id"`
}

// News is a card with a link; WeChat takes one article only.
type News struct {
	Articles []Article `json:"articles"`
}

// MPNewsArticle names a published article.
type MPNewsArticle struct {
	ArticleID string `json:"article_id"`
}

// Menu is a question with answers to press.
type Menu struct {
	Head string     `json:"head_content,omitempty"`
	List []MenuItem `json:"list"`
	Tail string     `json:"tail_content,omitempty"`
}

// MenuItem is one answer of a Menu. Its ID comes back as bizmsgmenuid.
type MenuItem struct {
	ID      string `json:"id"`
	Content string `json:"content"`
}

// Card is a coupon.
type Card struct {
	CardID string `json:"card_id"`
}

// ProgramPage is a card that opens a mini program.
type ProgramPage struct {
	Title        string `json:"title"`
	AppID        string `json:"appid"`
	PagePath     string `json:"pagepath"`
	ThumbMediaID string `json:"thumb_media_id"`
}

// Desk makes the message come from a member of the human desk.
type Desk struct {
	KfAccount string `json:"kf_account"`
}

// AIContext marks a text as written by a machine.
type AIContext struct {
	IsAIMsg int `json:"is_ai_msg"`
}

// CustomSend sends a customer-service message. There is no id and no receipt
// for these and no key that makes a second try harmless: WeChat's answer is all
// there will ever be.
func (c *Client) CustomSend(ctx context.Context, token string, m CustomMessage) error {
	if !IsOpenID(m.ToUser) {
		return sendError(APICustomSend, "touser", "it is not an openid")
	}
	kind, n := m.content()
	if n != 1 {
		return sendError(APICustomSend, "msgtype", "exactly one content must be set")
	}
	m.MsgType = kind
	var out answer
	return c.withToken(ctx, APICustomSend, token, nil, m, &out)
}

// content returns the type of the content that is set and how many are.
func (m *CustomMessage) content() (kind string, n int) {
	for _, c := range []struct {
		name string
		set  bool
	}{
		{"text", m.Text != nil}, {"image", m.Image != nil}, {"voice", m.Voice != nil},
		{"video", m.Video != nil}, {"music", m.Music != nil}, {"news", m.News != nil},
		{"mpnews", m.MPNews != nil}, {"mpnewsarticle", m.MPNewsArticle != nil}, {"msgmenu", m.Menu != nil},
		{"wxcard", m.Card != nil}, {"miniprogrampage", m.Page != nil},
	} {
		if c.set {
			kind, n = c.name, n+1
		}
	}
	return kind, n
}
