package bot

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"tidegate/pkg/fault"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// Bounds of what is passed on; WeChat refuses more.
const (
	maxMediaID = 256
	maxShort   = 2048 // titles, descriptions and addresses, in bytes
)

// translate says a passive answer in our words.
func (b *Bot) translate(p wechat.Passive, most int) (Answer, error) {
	bad := func(what string) (Answer, error) {
		return Answer{}, fault.New(fault.Final, b.op(), "its answer of type %s %s", p.Type, what)
	}
	var a Answer
	one := func(c wire.Content) (Answer, error) { a.Replies = []wire.Content{c}; return a, nil }
	switch p.Type {
	case "text":
		if strings.TrimSpace(p.Content) == "" {
			return Answer{Silent: "the bot answered an empty text"}, nil
		}
		text := cut(p.Content, wechat.MaxText)
		if text != p.Content {
			a.Note = fmt.Sprintf("the text was cut from %d to %d bytes", len(p.Content), len(text))
		}
		return one(wire.Content{Type: "text", Text: text})
	case "image", "voice":
		if !isMediaID(p.MediaID) {
			return bad("has no media id")
		}
		return one(wire.Content{Type: p.Type, MediaID: p.MediaID})
	case "video":
		if !isMediaID(p.MediaID) {
			return bad("has no media id")
		}
		return one(wire.Content{Type: "video", Video: &wire.Video{MediaID: p.MediaID, Title: cut(p.Title, maxShort), Description: cut(p.Description, maxShort)}})
	case "music":
		if !isLink(p.MusicURL) || p.HQMusicURL != "" && !isLink(p.HQMusicURL) || !isMediaID(p.ThumbMediaID) {
			return bad("needs MusicUrl and ThumbMediaId")
		}
		return one(wire.Content{Type: "music", Music: &wire.Music{
			Title: cut(p.Title, maxShort), Description: cut(p.Description, maxShort), URL: p.MusicURL, HQURL: p.HQMusicURL, ThumbMediaID: p.ThumbMediaID,
		}})
	case "news":
		return b.news(p, most)
	}
	return b.transfer()
}

// news makes a message of each article: a customer-service message holds one.
func (b *Bot) news(p wechat.Passive, most int) (Answer, error) {
	var a Answer
	for i, article := range p.Articles {
		if i == most {
			a.Note = fmt.Sprintf("%d of %d articles were left out", len(p.Articles)-most, len(p.Articles))
			break
		}
		if strings.TrimSpace(article.Title) == "" || !isLink(article.URL) || article.PicURL != "" && !isLink(article.PicURL) {
			return Answer{}, fault.New(fault.Final, b.op(), "its answer of type news: article %d needs a Title and a Url", i+1)
		}
		a.Replies = append(a.Replies, wire.Content{Type: "news", News: &wire.Article{
			Title: cut(article.Title, maxShort), Description: cut(article.Description, maxShort), URL: article.URL, PicURL: article.PicURL,
		}})
	}
	if len(a.Replies) == 0 {
		return Answer{}, fault.New(fault.Final, b.op(), "its answer of type news has no article")
	}
	return a, nil
}

// transfer cannot be followed: the acknowledgement, which alone hands a user
// over, went out before the bot was asked.
func (b *Bot) transfer() (Answer, error) {
	const why = "the bot hands over to the human desk, which only the acknowledgement can do: put a rule with hand_over and answer: at_once in front"
	if b.cfg.TransferText == "" {
		return Answer{Silent: why}, nil
	}
	return Answer{Replies: []wire.Content{{Type: "text", Text: b.cfg.TransferText}}, Note: why}, nil
}

func isMediaID(s string) bool {
	if s == "" || len(s) > maxMediaID {
		return false
	}
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return true
}

// isLink takes what a follower's phone can open without harm.
func isLink(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && len(s) <= maxShort
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	const ellipsis = "…"
	if len(s) <= n {
		return s
	}
	n -= len(ellipsis)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + ellipsis
}
