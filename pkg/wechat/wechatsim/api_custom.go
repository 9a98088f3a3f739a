package wechatsim

import (
	"encoding/json"
	"time"
)

// customMessage is a customer-service message of any type.
type customMessage struct {
	ToUser  string `json:"touser"`
	MsgType string `json:"msgtype"`
	Text    struct {
		Content string `json:"content"`
	} `json:"text"`
	Image  mediaRef `json:"image"`
	Voice  mediaRef `json:"voice"`
	MPNews mediaRef `json:"mpnews"`
	Video  struct {
		MediaID      string `json:"media_id"`
		ThumbMediaID string `json:"thumb_media_id"`
	} `json:"video"`
	Music struct {
		MusicURL     string `json:"musicurl"`
		ThumbMediaID string `json:"thumb_media_id"`
	} `json:"music"`
	News struct {
		Articles []json.RawMessage `json:"articles"`
	} `json:"news"`
	MPNewsArticle struct {
		ArticleID string `json:"article_id"`
	} `json:"mpnewsarticle"`
	MsgMenu struct {
		List []struct {
			ID      any    `json:"id"`
			Content string `json:"content"`
		} `json:"list"`
	} `json:"msgmenu"`
	WXCard struct {
		CardID string `json:"card_id"`
	} `json:"wxcard"`
	MiniProgramPage struct {
		Title        string `json:"title"`
		AppID        string `json:"appid"`
		PagePath     string `json:"pagepath"`
		ThumbMediaID string `json:"thumb_media_id"`
	} `json:"miniprogrampage"`
}

type mediaRef struct {
	MediaID string `json:"media_id"`
}

// customSend has no message id and no receipt: its answer is all there is.
func customSend(c *call) (any, *apiError) {
	var m customMessage
	if err := c.decode(&m); err != nil {
		return nil, err
	}
	if err := m.check(c.sim.cfg.Limits.TextBytes); err != nil {
		return nil, err
	}
	a := c.acct
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.followers[m.ToUser]
	switch {
	case f == nil:
		return nil, refusal(errInvalidOpenID)
	case f.refuses:
		return nil, refusal(errUserRefuses)
	}
	if code := f.windows.use(c.now); code != 0 {
		return nil, refusal(code)
	}
	f.lastSeen, f.typing = c.now, time.Time{}
	c.entry.Applied, c.entry.Visible = true, true
	return ok, nil
}

// check holds the message against the rules of its type.
func (m *customMessage) check(textBytes int) *apiError {
	if m.ToUser == "" {
		return refusal(errInvalidOpenID)
	}
	switch m.MsgType {
	case "text":
		return m.checkText(textBytes)
	case "image":
		return m.Image.check()
	case "voice":
		return m.Voice.check()
	case "mpnews":
		return m.MPNews.check()
	case "video":
		return mediaRef{m.Video.MediaID}.check()
	case "music":
		return mediaRef{m.Music.ThumbMediaID}.check()
	case "news":
		return m.checkNews()
	case "mpnewsarticle":
		return needed(m.MPNewsArticle.ArticleID, "article_id")
	case "msgmenu":
		return m.checkMenu()
	case "wxcard":
		return needed(m.WXCard.CardID, "card_id")
	case "miniprogrampage":
		return m.checkMiniProgram()
	}
	return refusal(errInvalidMsgType)
}

func (m *customMessage) checkText(limit int) *apiError {
	switch {
	case m.Text.Content == "":
		return refusal(errEmptyText)
	case len(m.Text.Content) > limit:
		return refusal(errContentSize)
	}
	return nil
}

func (r mediaRef) check() *apiError {
	if r.MediaID == "" {
		return refusal(errInvalidMediaID)
	}
	return nil
}

func (m *customMessage) checkNews() *apiError {
	switch len(m.News.Articles) {
	case 0:
		return refusal(errEmptyNews)
	case 1:
		return nil
	}
	return refusal(errArticleCount)
}

func (m *customMessage) checkMenu() *apiError {
	if len(m.MsgMenu.List) == 0 {
		return argument("msgmenu.list is empty")
	}
	for _, item := range m.MsgMenu.List {
		if item.Content == "" {
			return argument("msgmenu.list.content is empty")
		}
	}
	return nil
}

func (m *customMessage) checkMiniProgram() *apiError {
	p := m.MiniProgramPage
	switch {
	case p.AppID == "":
		return refusal(errMiniAppID)
	case p.PagePath == "":
		return refusal(errMiniPath)
	}
	return mediaRef{p.ThumbMediaID}.check()
}

func needed(value, name string) *apiError {
	if value == "" {
		return argument("%s is empty", name)
	}
	return nil
}

// typingLife is how long the typing sign shows by itself.
const typingLife = 15 * time.Second

// customTyping needs an exchange with the user in the last 30 seconds.
func customTyping(c *call) (any, *apiError) {
	var q struct {
		ToUser  string `json:"touser"`
		Command string `json:"command"`
	}
	if err := c.decode(&q); err != nil {
		return nil, err
	}
	a := c.acct
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.followers[q.ToUser]
	switch {
	case f == nil:
		return nil, refusal(errInvalidOpenID)
	case q.Command != "Typing" && q.Command != "CancelTyping":
		return nil, refusal(errTypingCommand)
	case f.lastSeen.IsZero() || c.now.Sub(f.lastSeen) > 30*time.Second:
		return nil, refusal(errTypingNoExchange)
	case q.Command == "Typing" && c.now.Before(f.typing):
		return nil, refusal(errTypingAlready)
	}
	f.typing = time.Time{}
	if q.Command == "Typing" {
		f.typing = c.now.Add(typingLife)
	}
	c.entry.Applied = true
	return ok, nil
}
