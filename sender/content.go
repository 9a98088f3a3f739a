package sender

import (
	"fmt"

	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// customMessages says a reply's content in WeChat's words: one message, or several
// for a text that is too long for one.
func customMessages(openID string, c wire.Content) ([]wechat.CustomMessage, error) {
	if c.Type != "text" || len(c.Text) <= maxPart {
		m, err := customMessage(openID, c)
		return []wechat.CustomMessage{m}, err
	}
	texts, ok := split(c.Text)
	if !ok {
		return nil, fmt.Errorf("text of %d bytes: WeChat takes %d at once, and at most %d messages are made of one reply", len(c.Text), maxPart, maxParts)
	}
	if len(texts) == 1 { // the rest was blank
		c.Text = texts[0]
		m, err := customMessage(openID, c)
		return []wechat.CustomMessage{m}, err
	}
	out := make([]wechat.CustomMessage, len(texts))
	for i, text := range texts {
		out[i] = wechat.CustomMessage{ToUser: openID, Text: &wechat.CustomText{Content: text}}
	}
	return out, nil
}

// customMessage says a reply's content in WeChat's words. An unknown type is
// an error: the letter was written by a newer release and is parked.
func customMessage(openID string, c wire.Content) (wechat.CustomMessage, error) {
	m := wechat.CustomMessage{ToUser: openID}
	switch c.Type {
	case "text":
		m.Text = &wechat.CustomText{Content: c.Text}
	case "image":
		m.Image = &wechat.Media{MediaID: c.MediaID}
	case "voice":
		m.Voice = &wechat.Media{MediaID: c.MediaID}
	case "video":
		if c.Video == nil {
			return m, fmt.Errorf("content of type video without a video")
		}
		m.Video = &wechat.Video{MediaID: c.Video.MediaID, Title: c.Video.Title, Description: c.Video.Description}
	case "music":
		if c.Music == nil {
			return m, fmt.Errorf("content of type music without a piece of music")
		}
		m.Music = &wechat.Music{Title: c.Music.Title, Description: c.Music.Description, URL: c.Music.URL, HQURL: c.Music.HQURL, ThumbMediaID: c.Music.ThumbMediaID}
	case "news":
		if c.News == nil {
			return m, fmt.Errorf("content of type news without an article")
		}
		m.News = &wechat.News{Articles: []wechat.Article{{
			Title: c.News.Title, Description: c.News.Description, URL: c.News.URL, PicURL: c.News.PicURL,
		}}}
	case "msgmenu":
		if c.Menu == nil {
			return m, fmt.Errorf("content of type msgmenu without a menu")
		}
		menu := &wechat.Menu{Head: c.Menu.Head, Tail: c.Menu.Tail, List: make([]wechat.MenuItem, len(c.Menu.Items))}
		for i, item := range c.Menu.Items {
			menu.List[i] = wechat.MenuItem{ID: item.ID, Content: item.Text}
		}
		m.Menu = menu
	default:
		return m, fmt.Errorf("content of type %.20q is not known to this release", c.Type)
	}
	return m, nil
}

func templateMessage(p *wire.Push) wechat.TemplateMessage {
	return wechat.TemplateMessage{
		ToUser: p.OpenID, TemplateID: p.TemplateID, URL: p.URL, MiniProgram: miniProgram(p),
		ClientMsgID: p.ID, Data: wechat.Values(p.Data),
	}
}

func subscriptionMessage(p *wire.Push) wechat.SubscriptionMessage {
	return wechat.SubscriptionMessage{
		ToUser: p.OpenID, TemplateID: p.TemplateID, Page: p.Page, MiniProgram: miniProgram(p),
		ClientMsgID: p.ID, Data: wechat.Values(p.Data),
	}
}

func miniProgram(p *wire.Push) *wechat.MiniProgram {
	if p.MiniAppID == "" {
		return nil
	}
	return &wechat.MiniProgram{AppID: p.MiniAppID, PagePath: p.MiniPath}
}
