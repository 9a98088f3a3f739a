package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"tidegate/receipts/export"
	"tidegate/receipts/store"
)

// columns heads both forms.
var columns = []struct{ English, Chinese string }{
	{"Account", "公众号"}, {"App", "业务系统"}, {"Template", "模板"}, {"Kind", "类型"}, {"State", "状态"},
	{"Errcode", "错误码"}, {"Reason", "原因"}, {"Count", "数量"}, {"First", "首次"}, {"Last", "末次"},
}

// CSV writes the lines as comma-separated values in UTF-8 with a byte order
// mark, without which spreadsheets misread the Chinese.
func (r *Report) CSV(w io.Writer) error {
	if _, err := io.WriteString(w, "\uFEFF"); err != nil {
		return err
	}
	c := csv.NewWriter(w)
	c.UseCRLF = true
	head := make([]string, len(columns))
	for i, col := range columns {
		head[i] = col.English + " " + col.Chinese
	}
	if err := c.Write(head); err != nil {
		return err
	}
	for _, l := range r.Lines {
		if err := c.Write(r.cells(l)); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

func (r *Report) cells(l store.Failure) []string {
	code := ""
	if l.ErrCode != 0 {
		code = strconv.Itoa(l.ErrCode)
	}
	return []string{
		export.Cell(l.Account), export.Cell(l.App), export.Cell(l.Template), export.Cell(string(l.Kind)), export.Cell(string(l.State)),
		code, export.Cell(l.Reason), strconv.FormatInt(l.Count, 10), r.clock(l.First), r.clock(l.Last),
	}
}

func (r *Report) clock(ms int64) string {
	return time.UnixMilli(ms).In(r.Period.From.Location()).Format("2006-01-02 15:04:05")
}
